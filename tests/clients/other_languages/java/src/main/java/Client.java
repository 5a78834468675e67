import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Administration, producing, groups of both protocols: arguments are the bootstrap servers and a name for the topic. */
public final class Client {
    private static final int RECORDS = 3000;
    private static final int PARTITIONS = 3;
    private static final short COPIES = 3;

    private final String bootstrap;
    private final String topic;

    private Client(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        Client client = new Client(arguments[0], arguments[1]);
        try (Admin admin = Admin.create(client.settings(Map.of()))) {
            client.makeTopic(admin);
            client.produce();
            for (String protocol : List.of("classic", "consumer")) {
                client.readAsGroup(admin, protocol);
            }
            client.changeTopic(admin);
        }
    }

    private Map<String, Object> settings(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    private void makeTopic(Admin admin) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, COPIES))).all().get();
        waitUntil("in sync on three brokers", () -> {
            TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            return found.partitions().size() == PARTITIONS
                && found.partitions().stream().allMatch(partition -> partition.isr().size() == COPIES);
        });
        say("a topic is created and described");
    }

    private void produce() throws Exception {
        say("PRODUCING");
        Map<String, Object> more = Map.of("acks", "all", "compression.type", "zstd", "linger.ms", 5);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings(more), new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < RECORDS; number++) {
                ProducerRecord<String, String> record =
                    new ProducerRecord<>(topic, "key-" + number % 10, Integer.toString(number));
                record.headers().add("sender", "java".getBytes(StandardCharsets.UTF_8));
                sent.add(producer.send(record));
                Thread.sleep(1);
            }
            producer.flush();
        }
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
        say(RECORDS + " records are acknowledged");
    }

    private void readAsGroup(Admin admin, String protocol) throws Exception {
        String group = topic + "-" + protocol;
        List<KafkaConsumer<String, String>> members = List.of(join(group, protocol), join(group, protocol));
        Map<Integer, String> read = new HashMap<>();
        Map<String, Integer> last = new HashMap<>();
        waitUntil("all is read", () -> {
            for (KafkaConsumer<String, String> member : members) {
                for (ConsumerRecord<String, String> record : member.poll(Duration.ofMillis(100))) {
                    int number = Integer.parseInt(record.value());
                    boolean first = read.put(number, record.key()) == null;
                    Integer before = first ? last.put(record.key(), number) : null;
                    check(before == null || before < number, "a key's records come in order");
                    check(record.headers().lastHeader("sender") != null, "headers come along");
                }
            }
            return read.size() == RECORDS && members.stream().noneMatch(each -> each.assignment().isEmpty());
        });
        Set<TopicPartition> owned = new java.util.HashSet<>();
        for (KafkaConsumer<String, String> member : members) {
            owned.addAll(member.assignment());
            member.commitSync();
        }
        check(owned.size() == PARTITIONS, "the members share the partitions");
        long committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values()
            .stream().mapToLong(each -> each.offset()).sum();
        check(committed == RECORDS, "all is committed: " + committed);
        check(admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size() == 2, "two members");
        members.forEach(KafkaConsumer::close);
        waitUntil("the group is deleted", () -> {
            try {
                admin.deleteConsumerGroups(List.of(group)).all().get();
                return true;
            } catch (java.util.concurrent.ExecutionException error) {
                return false;
            }
        });
        say("a " + protocol + " group of two has read all, in order, and committed");
    }

    private KafkaConsumer<String, String> join(String group, String protocol) {
        Map<String, Object> more = Map.of(
            "group.id", group, "group.protocol", protocol, "auto.offset.reset", "earliest", "enable.auto.commit", false);
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(settings(more), new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private void changeTopic(Admin admin) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, (Collection<AlterConfigOp>) List.of(change))).all().get();
        waitUntil("the setting holds", () ->
            admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value().equals("7200000"));
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(PARTITIONS + 1))).all().get();
        waitUntil("a partition more", () ->
            admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == PARTITIONS + 1);
        TopicPartition first = new TopicPartition(topic, 0);
        admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(5))).all().get();
        check(admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all().get().get(first).offset() == 5, "cut at 5");
        check(admin.describeCluster().nodes().get().size() == COPIES, "three brokers");
        admin.deleteTopics(List.of(topic)).all().get();
        waitUntil("the topic is gone", () -> !new TreeSet<>(admin.listTopics().names().get()).contains(topic));
        say("settings, partitions and records are changed, the topic is deleted");
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void waitUntil(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (!condition.holds()) {
            check(System.nanoTime() < deadline, "not in time: " + what);
            Thread.sleep(50);
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static void say(String text) {
        System.out.println(text);
        System.out.flush();
    }
}
