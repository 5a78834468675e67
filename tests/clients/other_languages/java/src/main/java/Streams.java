import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
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
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Kafka Streams, exactly once: words are counted over a repartition topic and kept in stores with changelogs, by two
 * instances of which one is closed and begins again with an empty disk, while a broker dies. Every count from 1 on comes
 * out once, in order.
 */
public final class Streams {
    private static final int RECORDS = 6000;
    private static final int WORDS = 50;
    private static final int PARTITIONS = 3;
    private static final short COPIES = 3;
    private static final Duration PATIENCE = Duration.ofSeconds(180);

    private final String bootstrap;
    private final String source;
    private final String sink;
    private final Path directory;

    private Streams(String bootstrap, String topic) throws Exception {
        this.bootstrap = bootstrap;
        this.source = topic;
        this.sink = topic + "-counts";
        this.directory = Files.createTempDirectory("streams");
    }

    public static void main(String[] arguments) throws Exception {
        new Streams(arguments[0], arguments[1]).run();
    }

    private void run() throws Exception {
        try (Admin admin = Admin.create(common())) {
            List<NewTopic> topics = List.of(new NewTopic(source, PARTITIONS, COPIES), new NewTopic(sink, PARTITIONS, COPIES));
            admin.createTopics(topics).all().get(60, TimeUnit.SECONDS);
        }
        KafkaStreams one = instance("one");
        KafkaStreams other = instance("other");
        one.start();
        other.start();
        System.out.println("PRODUCING");
        produce(0, RECORDS / 2);
        check(other.close(Duration.ofSeconds(60)), "an instance does not close");
        KafkaStreams again = instance("again");
        again.start();
        produce(RECORDS / 2, RECORDS);
        readAll();
        check(one.state().isRunningOrRebalancing(), "the first instance has ended: " + one.state());
        check(again.state().isRunningOrRebalancing(), "the second instance has ended: " + again.state());
        check(one.close(Duration.ofSeconds(60)) && again.close(Duration.ofSeconds(60)), "they do not close");
        System.out.println(RECORDS + " words are counted, each exactly once");
    }

    private KafkaStreams instance(String name) {
        Properties settings = common();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, source + "-counter");
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, name);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory.resolve(name).toString());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, (int) COPIES);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6000);
        KafkaStreams streams = new KafkaStreams(topology(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        return streams;
    }

    private Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        var words = builder
            .stream(source, Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, word) -> word, Grouped.with("by-word", Serdes.String(), Serdes.String()));
        words.count().toStream().to(sink, Produced.with(Serdes.String(), Serdes.Long()));
        words.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(2))).count();
        return builder.build();
    }

    private void produce(int from, int to) throws Exception {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(common(), new StringSerializer(), new StringSerializer())) {
            for (int number = from; number < to; number++) {
                producer.send(new ProducerRecord<>(source, "k" + number, "word-" + number % WORDS));
                if (number % 100 == 0) {
                    Thread.sleep(100);
                }
            }
        }
    }

    private void readAll() {
        Properties settings = common();
        settings.put("group.id", sink + "-reader");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        Map<String, List<Long>> counts = new HashMap<>();
        int found = 0;
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        try (KafkaConsumer<String, Long> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
            consumer.subscribe(List.of(sink));
            while (found < RECORDS) {
                check(System.nanoTime() < deadline, "only " + found + " of " + RECORDS + " counts came");
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(500))) {
                    counts.computeIfAbsent(record.key(), word -> new ArrayList<>()).add(record.value());
                    found++;
                }
            }
        }
        counts.forEach((word, seen) -> {
            for (int place = 0; place < seen.size(); place++) {
                check(seen.get(place) == place + 1, word + " was counted as " + seen);
            }
        });
        check(counts.size() == WORDS && found == RECORDS, found + " counts of " + counts.size() + " words");
    }

    private Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            System.err.println(otherwise);
            System.exit(1);
        }
    }
}
