// Views: arguments are the bootstrap servers and a name for the source. A leader is killed while it is written.
const { Kafka, logLevel } = require("kafkajs");

const RECORDS = 2100;
const [bootstrap, source] = process.argv.slice(2);
const view = `${source}.view`;
const kafka = new Kafka({
  brokers: bootstrap.split(","),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 50 },
});

// Dense at first, then sparse, then a long stretch without matches, one match, and none at the end.
const isWanted = (number) =>
  (number < 200 && number % 2 === 0) || (number >= 200 && number < 700 && number % 90 === 0) || number === 1500;

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: source, numPartitions: 1, replicationFactor: 3 }] });
  const configEntries = [
    { name: "view.of", value: source },
    { name: "view.filter", value: 'headers.region == "eu"' },
  ];
  await admin.createTopics({ topics: [{ topic: view, numPartitions: 1, replicationFactor: 3, configEntries }] });
  await produce();
  for (const bytes of [100, 2000, 1048576]) await read(bytes);
  await checkEnd(admin);
  await admin.disconnect();
}

async function produce() {
  console.log("PRODUCING");
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  for (let start = 0; start < RECORDS; start += 7) {
    const messages = [];
    for (let number = start; number < start + 7; number++) {
      messages.push({ key: "k", value: String(number), partition: 0, headers: { region: isWanted(number) ? "eu" : "us" } });
    }
    await producer.send({ topic: source, acks: -1, messages });
  }
  await producer.disconnect();
}

// Read as a group until every wanted record has come and the position is behind the last range.
async function read(bytes) {
  const groupId = `${view}-${bytes}`;
  const consumer = kafka.consumer({ groupId, maxBytesPerPartition: bytes, maxWaitTimeInMs: 100 });
  const shown = [];
  let end = -1;
  consumer.on(consumer.events.END_BATCH_PROCESS, ({ payload }) => (end = Number(payload.lastOffset)));
  await consumer.connect();
  await consumer.subscribe({ topic: view, fromBeginning: true });
  await consumer.run({ eachMessage: async ({ message }) => shown.push(Number(message.value.toString())) });
  const wanted = [...Array(RECORDS).keys()].filter(isWanted);
  const deadline = Date.now() + 60000;
  while ((shown.length < wanted.length || end < RECORDS - 1) && Date.now() < deadline) await sleep(50);
  await consumer.disconnect();
  if (JSON.stringify(shown) !== JSON.stringify(wanted)) throw new Error(`${bytes} bytes: ${shown.length} of ${wanted.length}`);
  console.log(`${bytes} bytes: ${shown.length} records, position ${end}`);
}

async function checkEnd(admin) {
  const [{ high }] = await admin.fetchTopicOffsets(view);
  if (Number(high) !== RECORDS) throw new Error(`the view ends at ${high}`);
}

const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
