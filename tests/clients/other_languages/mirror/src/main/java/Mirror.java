import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.connect.mirror.MirrorMaker;

/** MirrorMaker 2 copies a topic with its settings: arguments are the bootstrap servers and a name for the topic. */
public final class Mirror {
    private static final int RECORDS = 200;
    private static final Map<String, String> SETTINGS = Map.of(
            "cleanup.policy", "compact",
            "compression.type", "lz4",
            "file.delete.delay.ms", "1000",
            "min.cleanable.dirty.ratio", "0.9");

    private final String bootstrap;
    private final String topic;

    private Mirror(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        Mirror mirror = new Mirror(arguments[0], arguments[1]);
        MirrorMaker maker = new MirrorMaker(mirror.makerSettings());
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", mirror.bootstrap))) {
            mirror.fill(admin);
            maker.start();
            mirror.checkSettings(admin);
            mirror.checkRecords();
        }
        System.exit(0);
    }

    /** Source and target are one cluster: the copy has the source's alias before its name. */
    private Map<String, String> makerSettings() {
        Map<String, String> settings = new HashMap<>();
        settings.put("clusters", "one, two");
        settings.put("one.bootstrap.servers", bootstrap);
        settings.put("two.bootstrap.servers", bootstrap);
        settings.put("one->two.enabled", "true");
        settings.put("one->two.topics", topic);
        settings.put("two->one.enabled", "false");
        settings.put("replication.factor", "3");
        settings.put("sync.topic.configs.interval.seconds", "2");
        settings.put("emit.checkpoints.enabled", "false");
        settings.put("emit.heartbeats.enabled", "false");
        return settings;
    }

    private void fill(Admin admin) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, 2, (short) 3).configs(SETTINGS))).all().get();
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "compression.type", "lz4");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(topic, "key-" + number, "value-" + number)).get();
            }
        }
    }

    private void checkSettings(Admin admin) throws Exception {
        ConfigResource copy = new ConfigResource(ConfigResource.Type.TOPIC, "one." + topic);
        long deadline = System.currentTimeMillis() + 120_000;
        String missing = "the copy";
        while (missing != null) {
            if (System.currentTimeMillis() > deadline) {
                throw new AssertionError(missing + " did not arrive");
            }
            Thread.sleep(500);
            missing = missing(admin, copy);
        }
        System.out.println("the copy has the settings of its source");
    }

    private String missing(Admin admin, ConfigResource copy) throws Exception {
        try {
            Config found = admin.describeConfigs(List.of(copy)).all().get().get(copy);
            for (Map.Entry<String, String> setting : SETTINGS.entrySet()) {
                String value = found.get(setting.getKey()).value();
                if (!setting.getValue().equals(value)) {
                    return setting.getKey() + " is " + value + ": " + setting.getValue();
                }
            }
            return null;
        } catch (ExecutionException failure) {
            if (failure.getCause() instanceof UnknownTopicOrPartitionException) {
                return "the copy";
            }
            throw failure;
        }
    }

    private void checkRecords() {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap, "group.id", topic + "-check", "auto.offset.reset", "earliest");
        Map<String, String> found = new HashMap<>();
        long deadline = System.currentTimeMillis() + 120_000;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("one." + topic));
            while (found.size() < RECORDS && System.currentTimeMillis() < deadline) {
                consumer.poll(Duration.ofMillis(500)).forEach(record -> found.put(record.key(), record.value()));
            }
        }
        for (int number = 0; number < RECORDS; number++) {
            if (!("value-" + number).equals(found.get("key-" + number))) {
                throw new AssertionError("key-" + number + " is " + found.get("key-" + number));
            }
        }
        System.out.println("the copy has all " + RECORDS + " records");
    }
}
