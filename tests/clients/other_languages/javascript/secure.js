// Logins over TLS with each mechanism: arguments are the bootstrap servers, the authority, a user, its password and a
// name for topics.
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const RECORDS = 100;
const [bootstrap, authority, username, password, name] = process.argv.slice(2);

async function main() {
  for (const mechanism of ["plain", "scram-sha-256", "scram-sha-512"]) {
    const kafka = new Kafka({
      brokers: bootstrap.split(","),
      ssl: { ca: [fs.readFileSync(authority)] },
      sasl: { mechanism, username, password },
      logLevel: logLevel.NOTHING,
    });
    const topic = `${name}-${mechanism}`;
    await produce(kafka, topic);
    await consume(kafka, topic);
    console.log(`${mechanism}: logged in, produced and consumed`);
  }
}

async function produce(kafka, topic) {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }] });
  await admin.disconnect();
  const producer = kafka.producer();
  await producer.connect();
  for (let number = 0; number < RECORDS; number++) {
    await producer.send({ topic, acks: -1, messages: [{ value: `record ${number}` }] });
  }
  await producer.disconnect();
}

async function consume(kafka, topic) {
  const consumer = kafka.consumer({ groupId: `${topic}-group` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await new Promise((resolve, reject) => {
    let read = 0;
    const guard = setTimeout(() => reject(new Error(`${topic}: only ${read} records were read`)), 60_000);
    consumer.run({
      eachMessage: async () => {
        if (++read === RECORDS) {
          clearTimeout(guard);
          resolve();
        }
      },
    });
  });
  await consumer.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
