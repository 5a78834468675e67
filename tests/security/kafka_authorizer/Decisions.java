import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Kafka's StandardAuthorizer on standard input: rules and questions in lines of tabs, one decision for each question. */
public final class Decisions {
    private static StandardAuthorizer authorizer;
    private static long rules;

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "NEW" -> begin(words[1], words[2]);
                case "RULE" -> addRule(words);
                case "ASK" -> output.println(decide(words));
                case "ANY" -> output.println(decideAny(words));
                default -> throw new IllegalArgumentException(line);
            }
        }
        output.flush();
    }

    private static void begin(String allowEveryone, String superUsers) {
        authorizer = new StandardAuthorizer();
        Map<String, Object> configs = new HashMap<>();
        configs.put("allow.everyone.if.no.acl.found", allowEveryone);
        configs.put("super.users", superUsers);
        configs.put("node.id", "1");
        authorizer.configure(configs);
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.completeInitialLoad();
    }

    private static void addRule(String[] words) {
        StandardAcl rule = new StandardAcl(
            ResourceType.valueOf(words[1]), words[2], PatternType.valueOf(words[3]), words[4], words[5],
            AclOperation.valueOf(words[6]), AclPermissionType.valueOf(words[7]));
        authorizer.addAcl(new Uuid(1, ++rules), rule);
    }

    private static AuthorizationResult decide(String[] words) throws Exception {
        ResourcePattern resource =
            new ResourcePattern(ResourceType.valueOf(words[4]), words[5], PatternType.LITERAL);
        Action action = new Action(AclOperation.valueOf(words[3]), resource, 1, true, true);
        return authorizer.authorize(context(words[1], words[2]), List.of(action)).get(0);
    }

    private static AuthorizationResult decideAny(String[] words) throws Exception {
        return authorizer.authorizeByResourceType(
            context(words[1], words[2]), AclOperation.valueOf(words[3]), ResourceType.valueOf(words[4]));
    }

    private static AuthorizableRequestContext context(String principal, String host) throws Exception {
        int colon = principal.indexOf(':');
        KafkaPrincipal who = new KafkaPrincipal(principal.substring(0, colon), principal.substring(colon + 1));
        InetAddress address = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            public String listenerName() { return "CLIENTS"; }
            public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_SSL; }
            public KafkaPrincipal principal() { return who; }
            public InetAddress clientAddress() { return address; }
            public int requestType() { return 0; }
            public int requestVersion() { return 0; }
            public String clientId() { return "test"; }
            public int correlationId() { return 1; }
        };
    }
}
