import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Runs a repair that was written by `fairfix export --to json`, with nothing but the Java of 17.
 *
 * `java Program.java rule.json` runs the rows that came with it and compares the results with those of fairfix. It gives
 * probabilities and values; a decision that is drawn needs BLAKE2b as well, which is in Bouncy Castle.
 */
public final class Program {
    private final List<Object> steps;
    private final int result;

    Program(Map<String, Object> rule) {
        steps = list(rule.get("steps"));
        result = (int) number(rule.get("result"));
    }

    /** Returns P(decision = 1) or the value of a row; NaN where there is none. `draw` is used where values are drawn. */
    double predict(Map<String, Object> row, double draw) {
        double[] out = new double[steps.size()];
        for (int i = 0; i < out.length; i++) {
            out[i] = step(map(steps.get(i)), out, row, draw);
        }
        return out[result];
    }

    private static double step(Map<String, Object> step, double[] out, Map<String, Object> row, double draw) {
        List<Object> of = list(step.get("of"));
        double a = of.size() > 0 ? out[(int) number(of.get(0))] : Double.NaN;
        double b = of.size() > 1 ? out[(int) number(of.get(1))] : Double.NaN;
        switch ((String) step.get("operation")) {
            case "number": return number(row.get(step.get("column")));
            case "level":
                Object text = row.get(step.get("column"));
                return list(step.get("levels")).indexOf(text == null ? "(missing)" : String.valueOf(text));
            case "draw": return draw;
            case "constant": return number(step.get("value"));
            case "add": return a + b;
            case "subtract": return a - b;
            case "multiply": return a * b;
            case "divide": return a / b;
            case "minimum": return Math.min(a, b);
            case "maximum": return Math.max(a, b);
            case "exp": return Math.exp(a);
            case "log": return Math.log(a);
            case "below": return a < b ? 1 : 0;
            case "at_most": return a <= b ? 1 : 0;
            case "equal": return a == b ? 1 : 0;
            case "is_missing": return Double.isNaN(a) ? 1 : 0;
            case "choose": return a != 0 ? b : out[(int) number(of.get(2))];
            case "dot": return dot(of, list(step.get("weights")), out);
            case "search": return search(list(step.get("grid")), a, (Boolean) step.get("right"));
            case "take": return number(list(step.get("numbers")).get((int) a));
            case "trees": return trees(step, of, out);
            default: throw new IllegalArgumentException("unknown operation " + step.get("operation"));
        }
    }

    private static double dot(List<Object> of, List<Object> weights, double[] out) {
        double total = 0;
        for (int i = 0; i < of.size(); i++) {
            total += out[(int) number(of.get(i))] * number(weights.get(i));
        }
        return total;
    }

    private static double search(List<Object> grid, double x, boolean right) {
        int low = 0, high = grid.size();
        while (low < high) {
            int middle = (low + high) >>> 1;
            double one = number(grid.get(middle));
            boolean before = right ? !(x < one) : !(x <= one);
            if (before) low = middle + 1; else high = middle;
        }
        return low;
    }

    private static double trees(Map<String, Object> step, List<Object> of, double[] out) {
        List<Object> left = list(step.get("left")), right = list(step.get("right"));
        double total = number(step.get("start"));
        for (Object root : list(step.get("roots"))) {
            int at = (int) number(root);
            while ((int) number(left.get(at)) != at) {
                double x = out[(int) number(of.get((int) number(list(step.get("feature")).get(at))))];
                boolean goesLeft = Double.isNaN(x)
                    ? (Boolean) list(step.get("missing_left")).get(at)
                    : x <= number(list(step.get("threshold")).get(at));
                at = (int) number((goesLeft ? left : right).get(at));
            }
            total += number(list(step.get("value")).get(at));
        }
        return total;
    }

    // ------------------------------------------------------------------ the check

    public static void main(String[] arguments) throws IOException {
        Map<String, Object> rule = map(new Json(Files.readString(Path.of(arguments[0]))).value());
        Program program = new Program(rule);
        Map<String, Object> vectors = map(rule.get("vectors"));
        Map<String, Object> columns = map(vectors.get("rows"));
        String name = rule.get("gives").equals("decision") ? "p_positive" : "prediction";
        List<Object> expected = list(map(vectors.get("results")).get(name)), draws = list(vectors.get("draws"));
        int wrong = 0;
        for (int i = 0; i < expected.size(); i++) {
            Map<String, Object> row = new LinkedHashMap<>();
            for (Map.Entry<String, Object> column : columns.entrySet()) {
                row.put(column.getKey(), list(column.getValue()).get(i));
            }
            double mine = program.predict(row, number(draws.get(i))), theirs = number(expected.get(i));
            boolean same = Double.isNaN(mine) ? Double.isNaN(theirs) : Math.abs(mine - theirs) <= 1e-9;
            wrong += same ? 0 : 1;
        }
        System.out.println(wrong + " of " + expected.size() + " results differ from those of fairfix");
        System.exit(wrong == 0 ? 0 : 1);
    }

    private static double number(Object value) {
        return value == null ? Double.NaN : value instanceof Boolean ? ((Boolean) value ? 1 : 0) : (Double) value;
    }

    @SuppressWarnings("unchecked")
    private static List<Object> list(Object value) {
        return (List<Object>) value;
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> map(Object value) {
        return (Map<String, Object>) value;
    }

    /** JSON as maps, lists, texts, doubles and truth values; a library does the same. */
    private static final class Json {
        private final String text;
        private int at = 0;

        Json(String text) {
            this.text = text;
        }

        Object value() {
            blank();
            char next = text.charAt(at);
            if (next == '{') {
                Map<String, Object> out = new LinkedHashMap<>();
                while (more('}')) {
                    String key = string();
                    blank();
                    at++; // the colon
                    out.put(key, value());
                }
                return out;
            }
            if (next == '[') {
                List<Object> out = new ArrayList<>();
                while (more(']')) {
                    out.add(value());
                }
                return out;
            }
            if (next == '"') return string();
            int start = at;
            while (at < text.length() && ",]} \n".indexOf(text.charAt(at)) < 0) at++;
            String word = text.substring(start, at);
            return word.equals("null") ? null : word.equals("true") || word.equals("false")
                ? (Object) Boolean.valueOf(word) : (Object) Double.valueOf(word);
        }

        /** Steps over an opening bracket or a comma; false behind the closing bracket. */
        private boolean more(char end) {
            blank();
            boolean closed = text.charAt(at++) == end;
            blank();
            if (!closed && text.charAt(at) == end) {
                at++;
                return false;
            }
            return !closed;
        }

        private String string() {
            blank();
            StringBuilder out = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                char c = text.charAt(at);
                if (c != '\\') {
                    out.append(c);
                    continue;
                }
                c = text.charAt(++at);
                if (c == 'u') {
                    out.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
                    at += 4;
                } else {
                    out.append("nrtbf".indexOf(c) < 0 ? c : "\n\r\t\b\f".charAt("nrtbf".indexOf(c)));
                }
            }
            at++;
            return out.toString();
        }

        private void blank() {
            while (at < text.length() && Character.isWhitespace(text.charAt(at))) at++;
        }
    }
}
