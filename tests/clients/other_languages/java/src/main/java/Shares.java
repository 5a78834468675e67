import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;

/** Share groups: arguments are the bootstrap servers and a name for the topic and the group. */
public final class Shares {
    private static final Duration PATIENCE = Duration.ofSeconds(120);
    private static final int RECORDS = 2_000;
    private static final short COPIES = 3;

    private final Properties settings = new Properties();
    private final String name;

    private Shares(String bootstrap, String name) {
        this.name = name;
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
    }

    public static void main(String[] arguments) throws Exception {
        Shares shares = new Shares(arguments[0], arguments[1]);
        try (Admin admin = Admin.create(shares.settings)) {
            shares.prepare(admin);
            System.out.println("PRODUCING");
            shares.produce();
            shares.consume();
            shares.checkOffsets(admin);
        }
        System.out.println("passed");
    }

    private void prepare(Admin admin) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, 3, COPIES))).all().get(60, TimeUnit.SECONDS);
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, name);
        AlterConfigOp reset = new AlterConfigOp(
            new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(group, List.of(reset))).all().get(60, TimeUnit.SECONDS);
    }

    private void produce() throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(name, Integer.toString(number), Integer.toString(number)));
                if (number % 100 == 0) {
                    Thread.sleep(20);
                }
            }
            producer.flush();
        }
    }

    /** Accepts all records but every tenth, which it releases once, and every hundredth, which it rejects. */
    private void consume() {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("group.id", name);
        own.put("share.acknowledgement.mode", "explicit");
        Map<Integer, Integer> attempts = new HashMap<>();
        Set<Integer> done = new HashSet<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(own)) {
            consumer.subscribe(List.of(name));
            while (done.size() < RECORDS && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    int number = Integer.parseInt(record.value());
                    int attempt = attempts.merge(number, 1, Integer::sum);
                    if (number % 10 == 3 && attempt == 1) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    } else {
                        boolean isBad = number % 100 == 7;
                        consumer.acknowledge(record, isBad ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                        done.add(number);
                    }
                }
                consumer.commitSync(Duration.ofSeconds(30));
            }
        }
        check(done.size() == RECORDS, done.size() + " of " + RECORDS + " records were processed");
        for (int number = 3; number < RECORDS; number += 10) {
            check(attempts.get(number) >= 2, number + " was released and not delivered again");
        }
    }

    private void checkOffsets(Admin admin) throws Exception {
        var offsets = admin.listShareGroupOffsets(Map.of(name, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(name).get(60, TimeUnit.SECONDS);
        check(offsets.size() == 3, "offsets of " + offsets.size() + " partitions");
        long lag = 0;
        for (var info : offsets.values()) {
            lag += info.lag().orElse(0L);
        }
        check(lag == 0, "lag " + lag + " after everything was acknowledged");
        var described = admin.describeShareGroups(List.of(name)).all().get(60, TimeUnit.SECONDS).get(name);
        check(described.members().isEmpty(), "members after the consumer has closed");
        admin.deleteShareGroups(List.of(name)).all().get(60, TimeUnit.SECONDS);
    }

    private static void check(boolean isRight, String problem) {
        if (!isRight) {
            throw new IllegalStateException(problem);
        }
    }
}
