import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.requests.ApiVersionsResponse;
import org.apache.kafka.controller.QuorumFeatures;
import org.apache.kafka.metadata.VersionRange;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Prints what the release on the class path has, as lines of columns that are separated by tabs:
 *
 * <pre>
 * api  BROKER or CONTROLLER  key  lowest version  highest version     what ApiVersions lists on the listener
 * feature  name  lowest level  highest level
 * level  name                                                         the metadata.version of new clusters
 * broker or topic  key  type  default  validator
 * </pre>
 */
public class ReleaseTables {
    public static void main(String[] arguments) throws Exception {
        for (ListenerType listener : new ListenerType[] {ListenerType.BROKER, ListenerType.CONTROLLER})
            ApiVersionsResponse.filterApis(listener, false, false).forEach(api ->
                print("api", listener, api.apiKey(), api.minVersion(), api.maxVersion()));
        for (Map.Entry<String, VersionRange> feature : new TreeMap<>(features()).entrySet())
            print("feature", feature.getKey(), feature.getValue().min(), feature.getValue().max());
        print("level", MetadataVersion.latestProduction());
        print("broker", definition("kafka.server.KafkaConfig", "configDef"));
        print("topic", definition("org.apache.kafka.storage.internals.log.LogConfig", "configDefCopy"));
    }

    @SuppressWarnings("unchecked")
    static Map<String, VersionRange> features() throws Exception {
        Method method = QuorumFeatures.class.getMethod("defaultSupportedFeatureMap", boolean.class);
        return (Map<String, VersionRange>) method.invoke(null, false);
    }

    static ConfigDef definition(String name, String method) throws Exception {
        return (ConfigDef) Class.forName(name).getMethod(method).invoke(null);
    }

    static void print(String kind, ConfigDef definition) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            Object standard = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "REQUIRED";
            print(kind, key.name, key.type, standard == null ? "NULL" : standard, key.validator == null ? "-" : key.validator);
        }
    }

    static void print(Object... columns) {
        StringBuilder line = new StringBuilder();
        for (Object column : columns) line.append(line.length() == 0 ? "" : "\t").append(String.valueOf(column).replace("\n", " "));
        System.out.println(line);
    }
}
