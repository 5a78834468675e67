import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Two of a group move records in transactions while a broker dies: each is there exactly once. */
final class Movers {
    private static final int RECORDS = 3000;
    private static final int PARTITIONS = 3;
    private static final int MOVERS = 2;
    private static final short COPIES = 3;
    private static final Duration PATIENCE = Duration.ofSeconds(120);

    private final Properties common;
    private final String source;
    private final String sink;
    private volatile boolean done;

    Movers(Properties common, String topic) {
        this.common = common;
        this.source = topic + "-to-move";
        this.sink = topic + "-moved";
    }

    void run(Admin admin) throws Exception {
        List<NewTopic> topics = List.of(new NewTopic(source, PARTITIONS, COPIES), new NewTopic(sink, PARTITIONS, COPIES));
        admin.createTopics(topics).all().get(60, TimeUnit.SECONDS);
        fill();
        System.out.println("PRODUCING");
        ExecutorService threads = Executors.newFixedThreadPool(MOVERS);
        List<? extends Future<?>> movers =
            IntStream.range(0, MOVERS).mapToObj(number -> threads.submit(() -> move(number))).toList();
        try {
            Map<String, Integer> found = readUntilAll();
            found.forEach((value, times) -> check(times == 1, value + " is there " + times + " times"));
        } finally {
            done = true;
            threads.shutdown();
        }
        for (Future<?> mover : movers) {
            mover.get(60, TimeUnit.SECONDS);
        }
        System.out.println(RECORDS + " records are moved, each exactly once");
    }

    private void fill() {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(common)) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(source, number % PARTITIONS, "k", Integer.toString(number)));
            }
        }
    }

    private void move(int number) {
        while (!done) {
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(with("group.id", source, "max.poll.records", 20));
                 KafkaProducer<String, String> producer = new KafkaProducer<>(with("transactional.id", sink + number))) {
                producer.initTransactions();
                consumer.subscribe(List.of(source));
                while (!done) {
                    ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                    if (!records.isEmpty()) {
                        transact(producer, consumer, records);
                    }
                }
            } catch (KafkaException error) {
                System.out.println("a mover begins anew: " + error);
            }
        }
    }

    /** Where it fails the mover begins anew, from what is committed. */
    private void transact(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(sink, record.partition(), record.key(), record.value()));
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
    }

    private Map<String, Integer> readUntilAll() {
        Map<String, Integer> found = new HashMap<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(common)) {
            List<TopicPartition> partitions =
                IntStream.range(0, PARTITIONS).mapToObj(number -> new TopicPartition(sink, number)).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            int before = -1;
            while (found.size() < RECORDS || found.size() != before) {
                check(System.nanoTime() < deadline, "moved " + found.size() + " of " + RECORDS);
                before = found.size();
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> found.merge(record.value(), 1, Integer::sum));
            }
        }
        return found;
    }

    private Properties with(Object... more) {
        Properties settings = new Properties();
        settings.putAll(common);
        for (int place = 0; place < more.length; place += 2) {
            settings.put(more[place], more[place + 1]);
        }
        return settings;
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
