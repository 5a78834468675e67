// Transactions, of version 1: committed, aborted, a zombie, and a topic that is copied exactly once.
const ROUNDS = 4;

class Transactions {
  // `tools` are those of main.js, and what it has made.
  constructor(tools) {
    Object.assign(this, tools);
    this.sink = `${this.topic}-copies`;
    this.written = 0;
  }

  async run() {
    const { sink: topic, partitions: numPartitions, copies: replicationFactor } = this;
    await this.admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor }] });
    await this.commitAndAbort();
    await this.fence();
    await this.copy();
  }

  async commitAndAbort() {
    const producer = await this.connect("rounds");
    for (let round = 0; round < ROUNDS; round++) {
      const transaction = await producer.transaction();
      for (let partition = 0; partition < this.partitions; partition++) {
        await transaction.send(this.message(`round-${round}-${partition}`, partition));
      }
      await (round % 2 === 0 ? transaction.commit() : transaction.abort());
    }
    await producer.disconnect();
    this.written += (ROUNDS / 2) * this.partitions;
    const read = await this.readCommitted();
    this.check([...read.keys()].every((value) => Number(value.split("-")[1]) % 2 === 0), "what was aborted is read");
    this.say("transactions are committed and aborted");
  }

  async fence() {
    const zombie = await this.connect("zombie");
    const left = await zombie.transaction();
    await left.send(this.message("zombie", 0));
    const successor = await this.connect("zombie");
    const next = await successor.transaction();
    await next.send(this.message("successor", 0));
    const told = await left.commit().then(() => "that it has committed", (error) => error.type ?? error.name);
    this.check(["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"].includes(told), `the zombie is told ${told}`);
    await next.commit();
    await zombie.disconnect();
    await successor.disconnect();
    this.written += 1;
    const read = await this.readCommitted();
    this.check(read.get("successor") === 1 && !read.has("zombie"), "the zombie is not read, its successor is");
    this.say(`a zombie is fenced: ${told}`);
  }

  async copy() {
    const groupId = `${this.topic}-copiers`;
    const producer = await this.connect("copier");
    const consumer = this.kafka.consumer({ groupId });
    await consumer.connect();
    await consumer.subscribe({ topics: [this.topic], fromBeginning: true });
    const eachBatch = async ({ batch }) => this.copyBatch(producer, groupId, batch);
    await consumer.run({ autoCommit: false, eachBatch });
    this.written += this.records;
    const read = await this.readCommitted();
    await consumer.disconnect();
    await producer.disconnect();
    for (let number = 0; number < this.records; number++) {
      this.check(read.get(String(number)) === 1, `${number} is there ${read.get(String(number))} times`);
    }
    this.say(`${this.records} records are copied, each exactly once`);
  }

  async copyBatch(producer, consumerGroupId, { topic, partition, messages }) {
    const transaction = await producer.transaction();
    try {
      const copies = messages.map(({ value }) => ({ value, partition }));
      await transaction.send({ topic: this.sink, messages: copies });
      const offset = String(Number(messages.at(-1).offset) + 1);
      await transaction.sendOffsets({ consumerGroupId, topics: [{ topic, partitions: [{ partition, offset }] }] });
      await transaction.commit();
    } catch (error) {
      await transaction.abort();
      throw error;
    }
  }

  // What readers of committed data see, and how often, once all that was written is there.
  async readCommitted() {
    const read = new Map();
    const consumer = this.kafka.consumer({ groupId: `${this.sink}-reader-${this.written}` });
    await consumer.connect();
    await consumer.subscribe({ topics: [this.sink], fromBeginning: true });
    const eachMessage = async ({ message }) => {
      const value = message.value.toString();
      read.set(value, (read.get(value) ?? 0) + 1);
    };
    await consumer.run({ autoCommit: false, eachMessage });
    await this.waitUntil(`${this.written} are read`, async () => read.size >= this.written);
    await consumer.disconnect();
    return read;
  }

  async connect(name) {
    const settings = { transactionalId: `${this.topic}-${name}`, maxInFlightRequests: 1, idempotent: true };
    const producer = this.kafka.producer(settings);
    await producer.connect();
    return producer;
  }

  message(value, partition) {
    return { topic: this.sink, messages: [{ value, partition }] };
  }
}

module.exports = { Transactions };
