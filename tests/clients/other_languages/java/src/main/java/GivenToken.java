// Token for OAUTHBEARER that the settings of a client contain.

import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

public final class GivenToken implements AuthenticateCallbackHandler {
    private String token;
    private long expiresMs;

    @Override
    public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {
        token = (String) settings.get("token");
        expiresMs = Long.parseLong((String) settings.get("expires")) * 1000;
    }

    @Override
    public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
        for (Callback each : callbacks) {
            if (each instanceof OAuthBearerTokenCallback wanted) {
                wanted.token(new Token(token, expiresMs));
            } else if (each instanceof SaslExtensionsCallback wanted) {
                wanted.extensions(SaslExtensions.empty());
            } else {
                throw new UnsupportedCallbackException(each);
            }
        }
    }

    @Override
    public void close() {
    }

    private record Token(String value, long lifetimeMs) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of("all");
        }

        @Override
        public String principalName() {
            return "alice";
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }
}
