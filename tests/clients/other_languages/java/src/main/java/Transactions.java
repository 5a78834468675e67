import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Transactions, of version 2 since 4.0: arguments are the bootstrap servers and a name for the topics. */
public final class Transactions {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final short COPIES = 3;

    private final String bootstrap;

    private Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Transactions client = new Transactions(arguments[0]);
        String source = arguments[1];
        String sink = source + "-copies";
        try (Admin admin = Admin.create(client.settings())) {
            admin.createTopics(List.of(new NewTopic(source, 3, COPIES), new NewTopic(sink, 3, COPIES)))
                .all().get(60, TimeUnit.SECONDS);
            client.commitAndAbort(source, admin);
            client.fence(source);
            client.copy(source, sink);
            new Movers(client.settings(), source).run(admin);
        }
        System.out.println("passed");
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }

    private KafkaProducer<String, String> producer(String transactionalId) {
        Properties settings = settings();
        settings.put("transactional.id", transactionalId);
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        return producer;
    }

    private void commitAndAbort(String topic, Admin admin) throws Exception {
        String transactionalId = "java-" + UUID.randomUUID();
        List<Integer> epochs = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(transactionalId)) {
            for (int round = 0; round < 6; round++) {
                producer.beginTransaction();
                for (int number = 0; number < 10; number++) {
                    producer.send(new ProducerRecord<>(topic, number % 3, "k", round + "-" + number));
                }
                producer.flush();
                TransactionDescription described =
                    admin.describeTransactions(List.of(transactionalId)).description(transactionalId).get();
                epochs.add(described.producerEpoch());
                check("Ongoing".equals(described.state().toString()), "state " + described.state());
                if (round % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        System.out.println("epochs " + epochs);
        for (int round = 1; round < epochs.size(); round++) {
            check(epochs.get(round) == epochs.get(round - 1) + 1, "an epoch for each transaction: " + epochs);
        }
        check(readAll(topic, 30).size() == 30, "only what was committed is read");
    }

    private void fence(String topic) {
        String transactionalId = "java-" + UUID.randomUUID();
        try (KafkaProducer<String, String> zombie = producer(transactionalId)) {
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(topic, 0, "k", "zombie"));
            zombie.flush();
            try (KafkaProducer<String, String> successor = producer(transactionalId)) {
                try {
                    zombie.commitTransaction();
                    throw new AssertionError("the zombie has committed");
                } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                    System.out.println("fenced: " + fenced.getClass().getSimpleName());
                }
                successor.beginTransaction();
                successor.send(new ProducerRecord<>(topic, 0, "k", "successor"));
                successor.commitTransaction();
            }
        }
        List<String> values = readAll(topic, 31);
        check(values.contains("successor") && !values.contains("zombie"), "the zombie is not read");
    }

    private void copy(String source, String sink) {
        Properties settings = settings();
        settings.put("group.id", "java-" + UUID.randomUUID());
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
             KafkaProducer<String, String> producer = producer("java-" + UUID.randomUUID())) {
            consumer.subscribe(List.of(source));
            int copied = 0;
            boolean aborted = false;
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (copied < 31) {
                check(System.nanoTime() < deadline, "copied " + copied);
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                Map<TopicPartition, Long> first = new HashMap<>();
                producer.beginTransaction();
                int batch = 0;
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    producer.send(new ProducerRecord<>(sink, record.partition(), record.key(), record.value()));
                    first.putIfAbsent(partition, record.offset());
                    offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                    batch++;
                }
                if (batch > 0) {
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                }
                if (batch > 0 && !aborted) {
                    producer.abortTransaction();
                    first.forEach(consumer::seek);
                    aborted = true;
                } else {
                    producer.commitTransaction();
                    copied += batch;
                }
            }
            for (Map.Entry<TopicPartition, OffsetAndMetadata> entry : consumer.committed(consumer.assignment()).entrySet()) {
                check(entry.getValue() != null, "committed " + entry);
            }
        }
        check(readAll(sink, 31).size() == 31, "each is copied once");
    }

    private List<String> readAll(String topic, int expected) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings())) {
            List<TopicPartition> partitions = Arrays.asList(
                new TopicPartition(topic, 0), new TopicPartition(topic, 1), new TopicPartition(topic, 2));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            boolean quiet = false;
            while (!quiet) {
                check(System.nanoTime() < deadline, "read " + values.size() + " of " + expected);
                int before = values.size();
                consumer.poll(Duration.ofMillis(500)).forEach(record -> values.add(record.value()));
                quiet = values.size() >= expected && values.size() == before;
            }
        }
        Collections.sort(values);
        return values;
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
