import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Topics of which readers are shown few records, with long stretches that they are not shown: views and delayed messages. */
abstract class Gaps {
    static final int RECORDS = 2_100;
    private static final Duration PATIENCE = Duration.ofSeconds(120);

    final String topic;
    private final Properties settings = new Properties();

    Gaps(String bootstrap, String topic) {
        this.topic = topic;
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
    }

    /** A record in the partition 0 of the topic, with the number as its value. */
    abstract ProducerRecord<String, String> record(int number);

    abstract List<Integer> wanted(Properties own);

    abstract List<Integer> shown(Properties own);

    /** Dense at first, then sparse, then a long stretch that is not shown, one record, and none at the end. */
    static boolean isShown(int number) {
        return (number < 200 && number % 2 == 0) || (number >= 200 && number < 700 && number % 90 == 0) || number == 1_500;
    }

    void create(String name, Map<String, String> configs) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            NewTopic made = new NewTopic(name, 1, (short) 3).configs(configs);
            admin.createTopics(List.of(made)).all().get(60, TimeUnit.SECONDS);
        }
    }

    void run() throws Exception {
        System.out.println("PRODUCING");
        produce();
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            for (int bytes : List.of(100, 2_000, 1_048_576)) {
                read(isolation, bytes);
            }
        }
        System.out.println("passed");
    }

    /** Every second transaction of 100 records is aborted, and then written again. */
    private void produce() throws Exception {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("transactional.id", topic);
        own.put("batch.size", "400");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(own)) {
            producer.initTransactions();
            for (int start = 0; start < RECORDS; start += 100) {
                for (boolean commits : start % 200 == 0 ? new boolean[] {true} : new boolean[] {false, true}) {
                    producer.beginTransaction();
                    for (int number = start; number < start + 100; number++) {
                        producer.send(record(number));
                    }
                    if (commits) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                }
                Thread.sleep(50);
            }
        }
    }

    private void read(String isolation, int bytes) {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("isolation.level", isolation);
        own.put("max.partition.fetch.bytes", Integer.toString(bytes));
        own.put("enable.auto.commit", "false");
        List<Integer> wanted = wanted(own);
        List<Integer> shown = shown(own);
        if (!wanted.equals(shown)) {
            throw new AssertionError(isolation + ", " + bytes + ": " + shown.size() + " of " + wanted.size());
        }
        System.out.println(isolation + ", " + bytes + " bytes: " + shown.size() + " records up to the end");
    }

    /** Values up to the end of a partition, at least this number; the position must arrive at the end. */
    static List<Integer> readAll(Properties own, String topic, int count) {
        TopicPartition partition = new TopicPartition(topic, 0);
        List<Integer> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(own)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (values.size() < count || consumer.position(partition) < end(consumer, partition)) {
                if (System.nanoTime() > deadline) {
                    throw new AssertionError(topic + ": " + values.size() + " records, stopped at " + consumer.position(partition));
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.timestamp() > System.currentTimeMillis() + 1_000) {
                        throw new AssertionError(record.value() + " is early");
                    }
                    values.add(Integer.parseInt(record.value()));
                }
            }
        }
        return values;
    }

    private static long end(KafkaConsumer<String, String> consumer, TopicPartition partition) {
        return consumer.endOffsets(List.of(partition)).get(partition);
    }
}
