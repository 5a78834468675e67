import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Flink copies a topic exactly once, with transactions that end when a checkpoint is complete, while a broker dies. The
 * copier fails now and then and goes on from its checkpoint, once for each way of naming transactions.
 */
public final class Copy {
    private static final int RECORDS = 20000;
    private static final long FAILS_AFTER_NANOS = TimeUnit.SECONDS.toNanos(3);
    private static final int PARTITIONS = 3;
    private static final short COPIES = 3;
    private static final Duration PATIENCE = Duration.ofSeconds(120);
    private static final AtomicLong FAILED = new AtomicLong(System.nanoTime());

    private final String bootstrap;
    private final String source;

    private Copy(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.source = topic;
    }

    public static void main(String[] arguments) throws Exception {
        new Copy(arguments[0], arguments[1]).run();
        System.exit(0);
    }

    private void run() throws Exception {
        create(source);
        for (TransactionNamingStrategy naming : TransactionNamingStrategy.values()) {
            String sink = source + "-" + naming.name().toLowerCase();
            create(sink);
            JobClient job = copyTo(sink, naming);
            if (naming.ordinal() == 0) {
                System.out.println("PRODUCING");
                produce();
            }
            readAll(sink);
            job.cancel().get(60, TimeUnit.SECONDS);
            System.out.println(RECORDS + " records are copied, each exactly once: " + naming);
        }
    }

    private void create(String topic) throws Exception {
        try (Admin admin = Admin.create(common())) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, COPIES))).all().get(60, TimeUnit.SECONDS);
        }
    }

    private JobClient copyTo(String sink, TransactionNamingStrategy naming) throws Exception {
        Path directory = Files.createTempDirectory("flink");
        Configuration settings = Configuration.fromMap(Map.of(
            "execution.checkpointing.interval", "300ms",
            "execution.checkpointing.dir", directory.toUri().toString(),
            "restart-strategy.type", "fixed-delay",
            "restart-strategy.fixed-delay.attempts", "1000",
            "restart-strategy.fixed-delay.delay", "300ms"));
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        KafkaSource<String> from = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(source)
            .setGroupId(sink + "-copier")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> to = KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(sink)
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(sink)
            .setTransactionNamingStrategy(naming)
            .setProperty("transaction.timeout.ms", "60000")
            .build();
        environment
            .fromSource(from, WatermarkStrategy.noWatermarks(), "source")
            .map(new Failing())
            .sinkTo(to);
        return environment.executeAsync();
    }

    private static final class Failing implements MapFunction<String, String> {
        @Override
        public String map(String value) {
            long now = System.nanoTime();
            long failed = FAILED.get();
            check(now - failed < FAILS_AFTER_NANOS || !FAILED.compareAndSet(failed, now), "a failure on purpose");
            return value;
        }
    }

    private void produce() throws Exception {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(common(), new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(source, String.valueOf(number)));
                if (number % 100 == 0) {
                    Thread.sleep(50);
                }
            }
        }
    }

    private void readAll(String sink) {
        Properties settings = common();
        settings.put("group.id", sink + "-reader");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        Map<String, Integer> found = new HashMap<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(sink));
            while (found.size() < RECORDS) {
                check(System.nanoTime() < deadline, "only " + found.size() + " of " + RECORDS + " came");
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    check(found.merge(record.value(), 1, Integer::sum) == 1, record.value() + " is there twice");
                }
            }
        }
    }

    private Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }
}
