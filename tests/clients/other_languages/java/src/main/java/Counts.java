import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Producers and readers of one topic, driven by the lines of counted_client.py: arguments are the bootstrap servers and the topic. */
public final class Counts {
    private final String bootstrap;
    private final String topic;
    private final Map<String, Writer> writers = new HashMap<>();
    private final Map<String, Reader> readers = new HashMap<>();

    private Counts(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        Counts counts = new Counts(arguments[0], arguments[1]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                say(counts.follow(line.split(" ")));
            } catch (Exception error) {
                say("failed " + line + ": " + error);
            }
        }
        System.exit(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private String follow(String[] words) throws Exception {
        String name = words[1];
        switch (words[0]) {
            case "open":
                writers.put(name, new Writer(name, words[2], words[3]));
                return "opened";
            case "send":
                return "sent " + writers.get(name).send(Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "read":
                readers.put(name, new Reader(name, words[2], words[3]));
                readers.get(name).start();
                return "reads";
            default:
                if (writers.containsKey(name)) {
                    writers.remove(name).producer.close();
                } else {
                    readers.remove(name).end();
                }
                return "closed";
        }
    }

    private Properties settings(String clientId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", clientId);
        for (String each : List.of("key", "value")) {
            settings.put(each + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put(each + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return settings;
    }

    private final class Writer {
        private final KafkaProducer<String, String> producer;
        private final String name;
        private final String mode;

        private Writer(String name, String mode, String metadataAgeMs) {
            this.name = name;
            this.mode = mode;
            Properties settings = settings(name);
            settings.put("metadata.max.age.ms", metadataAgeMs);
            settings.put("batch.size", "200");
            settings.put("request.timeout.ms", "10000");
            settings.put("delivery.timeout.ms", "20000");
            settings.put("enable.idempotence", Boolean.toString(mode.equals("idempotent") || isTransactional()));
            if (isTransactional()) {
                settings.put("transactional.id", name);
            }
            producer = new KafkaProducer<>(settings);
            if (isTransactional()) {
                producer.initTransactions();
            }
        }

        private boolean isTransactional() {
            return mode.equals("transactional");
        }

        private String send(int first, int count) throws Exception {
            if (isTransactional()) {
                producer.beginTransaction();
            }
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = first; number < first + count; number++) {
                String value = name + ":" + number;
                sent.add(producer.send(new ProducerRecord<>(topic, mode.equals("unkeyed") ? null : value, value)));
            }
            List<String> partitions = new ArrayList<>();
            for (Future<RecordMetadata> each : sent) {
                partitions.add(Integer.toString(each.get().partition()));
            }
            if (isTransactional()) {
                producer.commitTransaction();
            }
            return String.join(" ", partitions);
        }
    }

    /** A consumer in a thread of its own: of a group in either protocol, or of the named partitions. */
    private final class Reader extends Thread {
        private final KafkaConsumer<String, String> consumer;
        private final String name;
        private volatile boolean ends;

        private Reader(String name, String kind, String place) {
            this.name = name;
            Properties settings = settings(name);
            settings.put("auto.offset.reset", "earliest");
            settings.put("isolation.level", "read_committed");
            boolean isAssigned = kind.equals("assigned");
            if (isAssigned) {
                settings.put("enable.auto.commit", "false");
            } else {
                settings.put("group.id", place);
                settings.put("group.protocol", kind);
                settings.put("auto.commit.interval.ms", "300");
            }
            consumer = new KafkaConsumer<>(settings);
            if (isAssigned) {
                consumer.assign(Arrays.stream(place.split(","))
                    .map(each -> new TopicPartition(topic, Integer.parseInt(each))).collect(Collectors.toList()));
            } else {
                consumer.subscribe(List.of(topic));
            }
        }

        @Override
        public void run() {
            try (consumer) {
                while (!ends) {
                    for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
                        say("value " + name + " " + each.partition() + " " + each.offset() + " " + each.value());
                    }
                }
            } catch (Exception error) {
                say("broken " + name + ": " + error);
            }
        }

        private void end() throws InterruptedException {
            ends = true;
            join();
        }
    }
}
