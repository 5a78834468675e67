import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.BrokerIdNotRegisteredException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidUpdateVersionException;
import org.apache.kafka.common.errors.LogDirNotFoundException;

/** Calls of Kafka's own administration tools: arguments are the bootstrap servers and a name for the topic. */
public final class Tools {
    private static final Map<String, String> SETTINGS = Map.of(
            "cleanup.policy", "compact",
            "compression.type", "lz4",
            "compression.lz4.level", "12",
            "file.delete.delay.ms", "1000",
            "segment.index.bytes", "1048576",
            "remote.log.copy.disable", "true",
            "local.retention.ms", "-2");

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            settingsAreKept(admin, topic);
            quorum(admin);
            features(admin);
            expect(BrokerIdNotRegisteredException.class, () -> admin.unregisterBroker(77).all().get());
            logDirectories(admin, topic);
            clientMetrics(admin);
        }
    }

    private static void settingsAreKept(Admin admin, String topic) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, 3, (short) 3).configs(SETTINGS))).all().get();
        Config found = describe(admin, new ConfigResource(ConfigResource.Type.TOPIC, topic));
        for (Map.Entry<String, String> setting : SETTINGS.entrySet()) {
            check(setting.getValue().equals(found.get(setting.getKey()).value()), setting + " is kept");
        }
        NewTopic tiered = new NewTopic(topic + "-tiered", 1, (short) 3).configs(Map.of("remote.storage.enable", "true"));
        expect(InvalidConfigurationException.class, () -> admin.createTopics(List.of(tiered)).all().get());
    }

    private static void quorum(Admin admin) throws Exception {
        QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
        check(quorum.voters().size() == 1, "the quorum has one voter");
        check(quorum.voters().get(0).replicaId() == quorum.leaderId(), "the voter leads");
        check(quorum.observers().size() == 2, "the other brokers are observers");
        check(quorum.highWatermark() > 0, "metadata changes are counted");
    }

    private static void features(Admin admin) throws Exception {
        FeatureUpdate present = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE);
        FeatureUpdate next = new FeatureUpdate((short) 9, FeatureUpdate.UpgradeType.UPGRADE);
        UpdateFeaturesOptions options = new UpdateFeaturesOptions();
        admin.updateFeatures(Map.of("group.version", present), options).all().get();
        expect(InvalidUpdateVersionException.class,
                () -> admin.updateFeatures(Map.of("group.version", next), options).all().get());
    }

    private static void logDirectories(Admin admin, String topic) throws Exception {
        Map<String, LogDirDescription> directories = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
        check(directories.size() == 1, "a broker has one log directory");
        TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, 1);
        expect(LogDirNotFoundException.class,
                () -> admin.alterReplicaLogDirs(Map.of(replica, "/no/such/directory")).all().get());
        String here = directories.keySet().iterator().next();
        admin.alterReplicaLogDirs(Map.of(replica, here)).all().get();
    }

    private static void clientMetrics(Admin admin) throws Exception {
        Config found = describe(admin, new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "some"));
        check("300000".equals(found.get("interval.ms").value()), "client metrics have Kafka's defaults");
    }

    private static Config describe(Admin admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource);
    }

    private static void expect(Class<? extends Exception> error, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (ExecutionException failure) {
            check(error.isInstance(failure.getCause()), error.getSimpleName() + ", not " + failure.getCause());
            return;
        }
        check(false, error.getSimpleName() + " is expected");
    }

    private static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError("it does not hold that " + what);
        }
        System.out.println(what);
    }
}
