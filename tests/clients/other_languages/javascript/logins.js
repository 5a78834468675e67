// Every way to log in, at once and under load, while logins expire. The argument is the file of `login_ground.py`.
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const ground = JSON.parse(fs.readFileSync(process.argv[2]));
const certificate = fs.readFileSync(ground.certificate);
const ca = [fs.readFileSync(ground.authority)];

function logins() {
  const user = { username: ground.user, password: ground.password };
  const mechanisms = {
    plain: { mechanism: "plain", ...user },
    "scram-sha-256": { mechanism: "scram-sha-256", ...user },
    "scram-sha-512": { mechanism: "scram-sha-512", ...user },
    oauthbearer: { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: ground.token }) },
  };
  const found = [["ssl", { brokers: places("SSL"), ssl: { ca, cert: certificate, key: certificate } }]];
  for (const [name, sasl] of Object.entries(mechanisms)) {
    found.push([`sasl-ssl-${name}`, { brokers: places("SASL_SSL"), ssl: { ca }, sasl }]);
    found.push([`sasl-plaintext-${name}`, { brokers: places("SASL_PLAINTEXT"), sasl }]);
  }
  return found;
}

function places(listener) {
  return ground.addresses[listener].split(",");
}

async function use([name, settings]) {
  const kafka = new Kafka({ ...settings, clientId: name, logLevel: logLevel.NOTHING, retry: { retries: 3 } });
  const topic = `javascript-${name}`;
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true });
  await admin.disconnect();
  const consumer = kafka.consumer({ groupId: `${topic}-group` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const read = new Set();
  await consumer.run({ eachMessage: async ({ message }) => read.add(message.value.toString()) });
  const sent = await load(kafka, topic);
  const deadline = Date.now() + 60_000;
  while (read.size < sent) {
    if (Date.now() > deadline) throw new Error(`${name}: ${read.size} of ${sent} records were read`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await consumer.disconnect();
  console.log(`${name}: ${sent} records`);
}

async function load(kafka, topic) {
  const producer = kafka.producer();
  await producer.connect();
  const end = Date.now() + ground.seconds * 1000;
  let sent = 0;
  while (Date.now() < end) {
    await producer.send({ topic, acks: -1, messages: [{ value: `record ${sent++}` }] });
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await producer.disconnect();
  return sent;
}

Promise.all(logins().map(use)).catch((error) => {
  console.error(error);
  process.exit(1);
});
