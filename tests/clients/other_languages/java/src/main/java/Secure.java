// Logins over TLS with each mechanism, users by the admin client: arguments are the bootstrap servers, the authority,
// a user, its password and a name for topics.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Secure {
    private static final int RECORDS = 100;
    private static final String[] MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"};

    public static void main(String[] arguments) throws Exception {
        for (String mechanism : MECHANISMS) {
            Map<String, Object> settings = settings(arguments, mechanism, arguments[2], arguments[3]);
            String topic = arguments[4] + "-" + mechanism;
            produce(settings, topic);
            consume(settings, topic);
            System.out.println(mechanism + ": logged in, produced and consumed");
        }
        manageUsers(arguments);
        System.out.println("a user is created, logs in and is deleted");
    }

    private static Map<String, Object> settings(String[] arguments, String mechanism, String user, String password) {
        String module = mechanism.equals("PLAIN") ? "plain.Plain" : "scram.Scram";
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("security.protocol", "SASL_SSL");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", arguments[1]);
        settings.put("sasl.mechanism", mechanism);
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security." + module
            + "LoginModule required username=\"" + user + "\" password=\"" + password + "\";");
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        return settings;
    }

    private static void produce(Map<String, Object> settings, String topic) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(topic, "record " + number)).get();
            }
        }
    }

    private static void consume(Map<String, Object> settings, String topic) {
        Map<String, Object> own = new HashMap<>(settings);
        own.put("group.id", topic + "-group");
        own.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(own)) {
            consumer.subscribe(List.of(topic));
            int read = 0;
            long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (read < RECORDS) {
                read += consumer.poll(Duration.ofMillis(500)).count();
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(topic + ": only " + read + " records were read");
                }
            }
        }
    }

    private static void manageUsers(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(settings(arguments, "SCRAM-SHA-512", arguments[2], arguments[3]))) {
            ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192);
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("java", info, "word")))
                .all().get();
            if (!admin.describeUserScramCredentials().all().get().containsKey("java")) {
                throw new IllegalStateException("the new user is not described");
            }
            produce(settings(arguments, "SCRAM-SHA-256", "java", "word"), arguments[4] + "-user");
            admin.alterUserScramCredentials(
                List.of(new UserScramCredentialDeletion("java", ScramMechanism.SCRAM_SHA_256))).all().get();
        }
    }
}
