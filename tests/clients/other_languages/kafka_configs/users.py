"""Users by Kafka's own kafka-configs, over TLS and SASL: arguments are the bootstrap servers, the authority, a user and
its password.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

MAIN = "kafka.admin.ConfigCommand"
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule"


class KafkaConfigs:
    def __init__(self, bootstrap: str, authority: str, user: str, password: str, file: Path) -> None:
        self._bootstrap = bootstrap
        self._file = file
        file.write_text(
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={authority}\n"
            f'sasl.jaas.config={JAAS} required username="{user}" password="{password}";\n'
        )

    def run(self, *arguments: str, user: str = "") -> str:
        entity = ("--entity-type", "users", *(("--entity-name", user) if user else ()))
        return self.run_main(MAIN, *entity, *arguments)

    def run_main(self, main: str, *arguments: str) -> str:
        """Output of a tool of Kafka, given by its main class."""
        place = ("--bootstrap-server", self._bootstrap, "--command-config", str(self._file))
        command = ["java", "-cp", "jars/*", main, *place, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.stdout + done.stderr


def main(bootstrap: str, authority: str, user: str, password: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        tool = KafkaConfigs(bootstrap, authority, user, password, Path(file.name))

        def expect(text: str, *arguments: str, user: str = "alice") -> None:
            output = tool.run(*arguments, user=user)
            assert text in output, f"{arguments}: {output}"
            print(f"{' '.join(arguments)}: {text}")

        expect(
            "Completed updating config for user alice.",
            "--alter",
            "--add-config",
            "SCRAM-SHA-256=[iterations=8192,password=x]",
        )
        expect("SCRAM-SHA-256=iterations=8192", "--describe")
        expect(
            "Completed updating config for user alice.",
            "--alter",
            "--add-config",
            "SCRAM-SHA-512=[password=y]",
        )
        expect("SCRAM-SHA-512=iterations=4096", "--describe")
        expect("alice", "--describe", user="")
        expect("Completed updating config for user alice.", "--alter", "--delete-config", "SCRAM-SHA-256")
        expect("does not exist", "--alter", "--delete-config", "SCRAM-SHA-256")
        expect("Completed updating config for user alice.", "--alter", "--delete-config", "SCRAM-SHA-512")


if __name__ == "__main__":
    main(*sys.argv[1:5])
