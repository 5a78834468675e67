import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS with a name node and two data nodes until standard input ends: Hdfs.java DIRECTORY PORT. */
public class Hdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set("dfs.replication", "2");
        settings.set("dfs.permissions.enabled", "false");
        MiniDFSCluster cluster =
            new MiniDFSCluster.Builder(settings, new File(arguments[0]))
                .nameNodePort(Integer.parseInt(arguments[1]))
                .numDataNodes(2)
                .build();
        cluster.waitActive();
        System.out.println("ready");
        while (System.in.read() >= 0) {}
        cluster.shutdown();
    }
}
