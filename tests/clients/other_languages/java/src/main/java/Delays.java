import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Delayed messages: arguments are the bootstrap servers and a name for the topic. A leader is killed while it is written. */
public final class Delays {
    private static final Duration PATIENCE = Duration.ofSeconds(120);
    private static final int RECORDS = 2_100;
    private static final int DELAY_MS = 1_500;
    private static final int HOUR_MS = 3_600_000;

    private final Properties settings = new Properties();
    private final String topic;

    private Delays(String bootstrap, String topic) {
        this.topic = topic;
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
    }

    public static void main(String[] arguments) throws Exception {
        Delays delays = new Delays(arguments[0], arguments[1]);
        try (Admin admin = Admin.create(delays.settings)) {
            NewTopic topic = new NewTopic(delays.topic, 1, (short) 3).configs(Map.of("delivery.delay", "true"));
            admin.createTopics(List.of(topic)).all().get(60, TimeUnit.SECONDS);
        }
        System.out.println("PRODUCING");
        delays.produce();
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            for (int bytes : List.of(100, 2_000, 1_048_576)) {
                delays.read(isolation, bytes);
            }
        }
        System.out.println("passed");
    }

    /** Dense at first, then sparse, then a long stretch of pending messages, one that is due, and pending ones at the end. */
    private static boolean isDue(int number) {
        return (number < 200 && number % 2 == 0) || (number >= 200 && number < 700 && number % 90 == 0) || number == 1_500;
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

    /** All messages are delayed: a reader of uncommitted records would see others of aborted transactions. */
    private ProducerRecord<String, String> record(int number) {
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, 0, "k", Integer.toString(number));
        record.headers().add("penstock-delay-ms", Integer.toString(isDue(number) ? DELAY_MS : HOUR_MS).getBytes());
        return record;
    }

    private void read(String isolation, int bytes) {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("isolation.level", isolation);
        own.put("max.partition.fetch.bytes", Integer.toString(bytes));
        own.put("enable.auto.commit", "false");
        List<Integer> wanted = IntStream.range(0, RECORDS).filter(Delays::isDue).boxed().toList();
        List<Integer> shown = readAll(own, wanted.size()).stream().sorted().toList();
        if (!wanted.equals(shown)) {
            throw new AssertionError(isolation + ", " + bytes + ": " + shown.size() + " of " + wanted.size());
        }
        System.out.println(isolation + ", " + bytes + " bytes: " + shown.size() + " messages up to the end");
    }

    /** Values up to the end of the partition; the position must arrive there. */
    private List<Integer> readAll(Properties own, int count) {
        TopicPartition partition = new TopicPartition(topic, 0);
        List<Integer> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(own)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (values.size() < count || consumer.position(partition) < end(consumer, partition)) {
                if (System.nanoTime() > deadline) {
                    throw new AssertionError(topic + ": " + values.size() + " messages, stopped at " + consumer.position(partition));
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
