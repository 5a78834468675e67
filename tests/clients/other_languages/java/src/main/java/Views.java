import java.time.Duration;
import java.util.ArrayList;
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
import org.apache.kafka.common.TopicPartition;

/** Views: arguments are the bootstrap servers and a name for the source. A leader is killed while it is written. */
public final class Views {
    private static final Duration PATIENCE = Duration.ofSeconds(120);
    private static final int RECORDS = 2_100;

    private final Properties settings = new Properties();
    private final String source;
    private final String view;

    private Views(String bootstrap, String source) {
        this.source = source;
        this.view = source + ".view";
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
    }

    public static void main(String[] arguments) throws Exception {
        Views views = new Views(arguments[0], arguments[1]);
        try (Admin admin = Admin.create(views.settings)) {
            NewTopic source = new NewTopic(views.source, 1, (short) 3);
            NewTopic view = new NewTopic(views.view, 1, (short) 3).configs(
                Map.of("view.of", views.source, "view.filter", "headers.region == \"eu\""));
            admin.createTopics(List.of(source)).all().get(60, TimeUnit.SECONDS);
            admin.createTopics(List.of(view)).all().get(60, TimeUnit.SECONDS);
        }
        System.out.println("PRODUCING");
        views.produce();
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            for (int bytes : List.of(100, 2_000, 1_048_576)) {
                views.read(isolation, bytes);
            }
        }
        System.out.println("passed");
    }

    /** Dense at first, then sparse, then a long stretch without matches, one match, and none at the end. */
    private static boolean isWanted(int number) {
        return (number < 200 && number % 2 == 0) || (number >= 200 && number < 700 && number % 90 == 0) || number == 1_500;
    }

    /** Every second transaction of 100 records is aborted, and then written again. */
    private void produce() throws Exception {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("transactional.id", source);
        own.put("batch.size", "400");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(own)) {
            producer.initTransactions();
            for (int start = 0; start < RECORDS; start += 100) {
                for (boolean commits : start % 200 == 0 ? new boolean[] {true} : new boolean[] {false, true}) {
                    producer.beginTransaction();
                    for (int number = start; number < start + 100; number++) {
                        ProducerRecord<String, String> record = new ProducerRecord<>(
                            source, 0, Integer.toString(number), Integer.toString(number));
                        record.headers().add("region", (isWanted(number) ? "eu" : "us").getBytes());
                        producer.send(record);
                    }
                    if (commits) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                }
                Thread.sleep(50);
            }
        }
    }

    private void read(String isolation, int bytes) {
        Properties own = new Properties();
        own.putAll(settings);
        own.put("isolation.level", isolation);
        own.put("max.partition.fetch.bytes", Integer.toString(bytes));
        own.put("enable.auto.commit", "false");
        List<String> all = readAll(own, source).stream().filter(each -> isWanted(Integer.parseInt(each))).toList();
        List<String> shown = readAll(own, view);
        if (!all.equals(shown)) {
            throw new AssertionError(isolation + ", " + bytes + ": " + shown.size() + " of " + all.size());
        }
        System.out.println(isolation + ", " + bytes + " bytes: " + shown.size() + " records up to the end");
    }

    /** Values up to the end of a partition; the position must arrive there. */
    private List<String> readAll(Properties own, String topic) {
        TopicPartition partition = new TopicPartition(topic, 0);
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(own)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (consumer.position(partition) < end) {
                if (System.nanoTime() > deadline) {
                    throw new AssertionError(topic + ": stopped at " + consumer.position(partition) + " of " + end);
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }
}
