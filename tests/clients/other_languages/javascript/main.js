// Administration, producing, a group and transactions: arguments are the bootstrap servers and a name for the topic.
const { ConfigResourceTypes, CompressionTypes, Kafka, logLevel } = require("kafkajs");
const { Transactions } = require("./transactions.js");

const RECORDS = 3000;
const PARTITIONS = 3;
const COPIES = 3;
const [bootstrap, topic] = process.argv.slice(2);
const group = `${topic}-group`;
const kafka = new Kafka({
  brokers: bootstrap.split(","),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 50 },
});

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await makeTopic(admin);
  await produce();
  await readAsGroup(admin);
  const made = { kafka, admin, topic, records: RECORDS, partitions: PARTITIONS, copies: COPIES };
  await new Transactions({ ...made, waitUntil, check, say }).run();
  await changeTopic(admin);
  await admin.disconnect();
}

async function makeTopic(admin) {
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: COPIES }] });
  await waitUntil("in sync on three brokers", async () => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    const found = topics[0].partitions;
    return found.length === PARTITIONS && found.every((partition) => partition.isr.length === COPIES);
  });
  say("a topic is created and described");
}

// One key, so one partition, a call: kafkajs 2.2.4 drops a partition of a call whose leader moves to a broker that has
// already answered that call (its issue 1303).
async function produce() {
  say("PRODUCING");
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  for (let number = 0; number < RECORDS; number += 10) {
    const messages = [];
    for (let next = number; next < number + 10; next++) {
      messages.push({ key: `key-${(number / 10) % 10}`, value: String(next), headers: { sender: "javascript" } });
    }
    await producer.send({ topic, acks: -1, compression: CompressionTypes.GZIP, messages });
    await sleep(5);
  }
  await producer.disconnect();
  say(`${RECORDS} records are acknowledged`);
}

async function readAsGroup(admin) {
  const read = new Set();
  const last = new Map();
  let problem = null;
  const eachMessage = async ({ message }) => {
    const number = Number(message.value.toString());
    const key = message.key.toString();
    if (!read.has(number)) {
      if (last.has(key) && last.get(key) > number) problem = "a key's records come in order";
      last.set(key, number);
    }
    if (message.headers.sender.toString() !== "javascript") problem = "headers come along";
    read.add(number);
  };
  const members = [];
  for (let each = 0; each < 2; each++) {
    const consumer = kafka.consumer({ groupId: group });
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await consumer.run({ autoCommitInterval: 200, eachMessage });
    members.push(consumer);
  }
  await waitUntil("all is read by two members", async () => {
    const { groups } = await admin.describeGroups([group]);
    return read.size === RECORDS && groups[0].members.length === 2 && groups[0].state === "Stable";
  });
  check(problem === null, problem);
  for (const consumer of members) await consumer.disconnect();
  const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
  const committed = partitions.reduce((sum, partition) => sum + Number(partition.offset), 0);
  check(committed === RECORDS, `all is committed: ${committed}`);
  const { groups } = await admin.listGroups();
  check(groups.some(({ groupId }) => groupId === group), "the group is listed");
  await admin.deleteGroups([group]);
  say("a group of two has read all, in order, and committed");
}

async function changeTopic(admin) {
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ ...resource, configEntries: [{ name: "retention.ms", value: "7200000" }] }],
  });
  await waitUntil("the setting holds", async () => {
    const { resources } = await admin.describeConfigs({ resources: [{ ...resource, configNames: ["retention.ms"] }] });
    return resources[0].configEntries[0].configValue === "7200000";
  });
  await admin.createPartitions({ topicPartitions: [{ topic, count: PARTITIONS + 1 }] });
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "5" }] });
  const offsets = await admin.fetchTopicOffsets(topic);
  check(offsets.find(({ partition }) => partition === 0).low === "5", "cut at 5");
  check((await admin.describeCluster()).brokers.length === COPIES, "three brokers");
  await admin.deleteTopics({ topics: [topic] });
  await waitUntil("the topic is gone", async () => !(await admin.listTopics()).includes(topic));
  say("settings, partitions and records are changed, the topic is deleted");
}

async function waitUntil(what, holds) {
  const deadline = Date.now() + 60_000;
  while (!(await holds())) {
    check(Date.now() < deadline, `not in time: ${what}`);
    await sleep(50);
  }
}

function sleep(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function check(holds, what) {
  if (!holds) throw new Error(what);
}

function say(text) {
  console.log(text);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
