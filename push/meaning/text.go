package meaning

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"navarch.io/navarch/push/xds"
)

const (
	maxText  = 400 // the longest text of a fact or a risk, in runes
	maxValue = 80  // the longest text of one value, in runes
	maxParts = 8   // the most parts of a fact
)

// clip limits a text to maxText runes.
func clip(text string) string { return limit(text, maxText) }

// limit limits a text to a number of runes.
func limit(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-3]) + "..."
}

// domain is the end of the hosts of Kubernetes services, which names of facts leave out.
const domain = ".svc.cluster.local"

// short returns a name without the domain of Kubernetes services.
func short(name string) string { return strings.ReplaceAll(name, domain, "") }

// shortFilter returns the name of a filter without the parts that all filters of a kind have in common.
func shortFilter(name string) string {
	for _, kind := range []string{"envoy.filters.http.", "envoy.filters.network.", "envoy.filters.listener."} {
		if rest, is := strings.CutPrefix(name, kind); is {
			return rest
		}
	}
	return name
}

// shortCluster returns a cluster as host:port|subset; names of another form as they are.
func shortCluster(name string) string {
	direction, port, subset, host, ok := xds.ParseCluster(name)
	switch {
	case !ok:
		return name
	case direction == "inbound" && subset+host == "":
		return fmt.Sprintf("port %d", port)
	case direction != "outbound":
		return name
	case subset != "":
		subset = "|" + subset
	}
	return fmt.Sprintf("%s:%d%s", short(host), port, subset)
}

// plural returns a number with a noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if before, is := strings.CutSuffix(noun, "y"); is {
		return fmt.Sprintf("%d %sies", n, before)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// list joins names, the first few of them.
func list(names []string) string {
	const most = 5
	if rest := len(names) - most; rest > 1 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", rest)
	}
	return strings.Join(names, ", ")
}

// change collects the parts of one fact.
type change []string

// compare adds "name old -> new" if two texts differ. An empty text means none.
func (c *change) compare(name, old, new string) {
	if old == new {
		return
	}
	if name != "" {
		name += " "
	}
	*c = append(*c, name+orNone(old)+" -> "+orNone(new))
}

// others adds the differences of two messages that the model does not have.
func (c *change) others(old, new proto.Message) { *c = append(*c, differences(old, new)...) }

// String joins the parts, at most maxParts of them.
func (c change) String() string {
	if rest := len(c) - maxParts; rest > 0 {
		return strings.Join(c[:maxParts], "; ") + fmt.Sprintf("; and %s more", plural(rest, "difference"))
	}
	return strings.Join(c, "; ")
}

// orNone returns a text, or "none".
func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// brief returns a message as a short text, as Brief does with maxValue.
func brief(m proto.Message) string { return Brief(m, maxValue) }

// Brief returns a message as a text of at most so many runes: durations, numbers and percentages as people write them,
// others as JSON on one line.
func Brief(m proto.Message, most int) string {
	switch m := m.(type) {
	case *durationpb.Duration:
		return m.AsDuration().String()
	case *wrapperspb.UInt32Value:
		return strconv.FormatUint(uint64(m.GetValue()), 10)
	case *wrapperspb.UInt64Value:
		return strconv.FormatUint(m.GetValue(), 10)
	case *wrapperspb.BoolValue:
		return strconv.FormatBool(m.GetValue())
	case *typev3.Percent:
		return strconv.FormatFloat(m.GetValue(), 'g', -1, 64) + "%"
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil { // a type that this build does not know
		return string(m.ProtoReflect().Descriptor().Name())
	}
	text := strings.ReplaceAll(strings.ReplaceAll(string(raw), ", ", ","), ": ", ":") // protojson varies its white space
	return limit(text, most)
}
