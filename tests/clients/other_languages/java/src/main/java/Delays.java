import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.IntStream;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Delayed messages: arguments are the bootstrap servers and a name for the topic. A leader is killed while it is written. */
public final class Delays extends Gaps {
    private static final int DELAY_MS = 1_500;
    private static final int HOUR_MS = 3_600_000;

    private Delays(String bootstrap, String topic) {
        super(bootstrap, topic);
    }

    public static void main(String[] arguments) throws Exception {
        Delays delays = new Delays(arguments[0], arguments[1]);
        delays.create(delays.topic, Map.of("delivery.delay", "true"));
        delays.run();
    }

    /** All messages are delayed: a reader of uncommitted records would see others of aborted transactions. */
    @Override
    ProducerRecord<String, String> record(int number) {
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, 0, "k", Integer.toString(number));
        record.headers().add("penstock-delay-ms", Integer.toString(isShown(number) ? DELAY_MS : HOUR_MS).getBytes());
        return record;
    }

    @Override
    List<Integer> wanted(Properties own) {
        return IntStream.range(0, RECORDS).filter(Gaps::isShown).boxed().toList();
    }

    @Override
    List<Integer> shown(Properties own) {
        return readAll(own, topic, wanted(own).size()).stream().sorted().toList();
    }
}
