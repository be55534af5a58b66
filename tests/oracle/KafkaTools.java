import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;

import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs main classes of Kafka's one after the other in this process, for tools.py.
 *
 * A line of standard input holds words in base64: what the tool shall read, its class, its arguments. A line of
 * standard output answers with the exit code and, in base64, the tool's standard output and standard error.
 */
public class KafkaTools {
    static final List<Runnable> hooks = new ArrayList<>();
    static Integer status;

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure(KafkaTools::end);
        Exit.setHaltProcedure(KafkaTools::end);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = Arrays.stream(line.split(" ", -1)).map(KafkaTools::decoded).toArray(String[]::new);
            ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(words[0].getBytes(UTF_8)));
            listen(out, err);
            status = null;
            run(words[1], Arrays.copyOfRange(words, 2, words.length));
            listen(out, err);
            hooks.forEach(Runnable::run);
            hooks.clear();
            answers.println(status + " " + encoded(out) + " " + encoded(err));
        }
    }

    static void listen(OutputStream out, OutputStream err) {
        System.setOut(new PrintStream(out, true, UTF_8));
        System.setErr(new PrintStream(err, true, UTF_8));
    }

    static void run(String main, String[] arguments) {
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
            if (status == null) status = 0;
        } catch (ReflectiveOperationException failed) {
            if (status != null) return;
            status = 1;
            (failed.getCause() == null ? failed : failed.getCause()).printStackTrace();
        }
    }

    /** Tools catch what their own exit throws here and exit again: the first one counts, the rest is not heard. */
    static void end(int code, String message) {
        if (status == null) {
            status = code;
            listen(OutputStream.nullOutputStream(), OutputStream.nullOutputStream());
        }
        throw new RuntimeException("the tool has ended");
    }

    static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), UTF_8);
    }

    static String encoded(ByteArrayOutputStream written) {
        return Base64.getEncoder().encodeToString(written.toByteArray());
    }
}
