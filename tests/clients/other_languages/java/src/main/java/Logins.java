// Every way to log in, at once and under load, while logins expire. The argument is the file of `login_ground.py`.

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Logins {
    private static final String MODULES = "org.apache.kafka.common.security.";
    private static String ground;

    public static void main(String[] arguments) throws Exception {
        ground = Files.readString(Path.of(arguments[0]));
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<Void>> running = new ArrayList<>();
        for (Map.Entry<String, Map<String, Object>> login : logins().entrySet()) {
            running.add(threads.submit((Callable<Void>) () -> use(login.getKey(), login.getValue(), threads)));
        }
        for (Future<Void> each : running) {
            each.get();
        }
        System.exit(0);
    }

    private static String given(String name) {
        Matcher found = Pattern.compile("\"" + name + "\": \"?([^\"}]+?)[\",}]").matcher(ground);
        if (!found.find()) {
            throw new IllegalStateException(name + " is not given");
        }
        return found.group(1);
    }

    private static Map<String, Map<String, Object>> logins() {
        Map<String, Map<String, Object>> found = new HashMap<>();
        Map<String, Object> shown = settings("SSL");
        shown.put("ssl.keystore.type", "PEM");
        shown.put("ssl.keystore.location", given("certificate"));
        found.put("ssl", shown);
        for (String protocol : List.of("SASL_SSL", "SASL_PLAINTEXT")) {
            for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")) {
                Map<String, Object> settings = settings(protocol);
                settings.put("sasl.mechanism", mechanism);
                settings.put("sasl.jaas.config", jaas(mechanism));
                if (mechanism.equals("OAUTHBEARER")) {
                    settings.put("sasl.login.callback.handler.class", GivenToken.class.getName());
                    settings.put("token", given("token"));
                    settings.put("expires", given("expires"));
                }
                found.put(protocol.toLowerCase().replace('_', '-') + "-" + mechanism.toLowerCase(), settings);
            }
        }
        return found;
    }

    private static String jaas(String mechanism) {
        if (mechanism.equals("OAUTHBEARER")) {
            return MODULES + "oauthbearer.OAuthBearerLoginModule required;";
        }
        String module = mechanism.equals("PLAIN") ? "plain.Plain" : "scram.Scram";
        return MODULES + module + "LoginModule required username=\"" + given("user") + "\" password=\""
            + given("password") + "\";";
    }

    private static Map<String, Object> settings(String protocol) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", given(protocol));
        settings.put("security.protocol", protocol);
        if (protocol.endsWith("SSL")) {
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", given("authority"));
        }
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        return settings;
    }

    private static Void use(String name, Map<String, Object> settings, ExecutorService threads) throws Exception {
        String topic = "java-" + name;
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
        }
        AtomicInteger wanted = new AtomicInteger(Integer.MAX_VALUE);
        Future<Void> reading = threads.submit((Callable<Void>) () -> read(settings, topic, wanted));
        wanted.set(load(settings, topic));
        reading.get();
        System.out.println(name + ": " + wanted.get() + " records");
        return null;
    }

    private static int load(Map<String, Object> settings, String topic) throws Exception {
        long end = System.nanoTime() + Duration.ofSeconds(Integer.parseInt(given("seconds"))).toNanos();
        int sent = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            while (System.nanoTime() < end) {
                producer.send(new ProducerRecord<>(topic, "record " + sent++)).get();
                Thread.sleep(10);
            }
        }
        return sent;
    }

    private static Void read(Map<String, Object> settings, String topic, AtomicInteger wanted) {
        Map<String, Object> own = new HashMap<>(settings);
        own.put("group.id", topic + "-group");
        own.put("auto.offset.reset", "earliest");
        long deadline = System.nanoTime() + Duration.ofSeconds(120).toNanos();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(own)) {
            consumer.subscribe(List.of(topic));
            for (int read = 0; read < wanted.get();) {
                read += consumer.poll(Duration.ofMillis(200)).count();
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(topic + ": only " + read + " records were read");
                }
            }
        }
        return null;
    }
}
