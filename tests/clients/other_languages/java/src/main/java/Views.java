import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Views: arguments are the bootstrap servers and a name for the source. A leader is killed while it is written. */
public final class Views extends Gaps {
    private final String view;

    private Views(String bootstrap, String source) {
        super(bootstrap, source);
        view = source + ".view";
    }

    public static void main(String[] arguments) throws Exception {
        Views views = new Views(arguments[0], arguments[1]);
        views.create(views.topic, Map.of());
        views.create(views.view, Map.of("view.of", views.topic, "view.filter", "headers.region == \"eu\""));
        views.run();
    }

    @Override
    ProducerRecord<String, String> record(int number) {
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, 0, Integer.toString(number), Integer.toString(number));
        record.headers().add("region", (isShown(number) ? "eu" : "us").getBytes());
        return record;
    }

    @Override
    List<Integer> wanted(Properties own) {
        return readAll(own, topic, 0).stream().filter(Gaps::isShown).toList();
    }

    @Override
    List<Integer> shown(Properties own) {
        return readAll(own, view, 0);
    }
}
