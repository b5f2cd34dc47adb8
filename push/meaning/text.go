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
	"navarch.io/navarch/store/cut"
)

const (
	maxText  = 400 // maximum length of a text in a fact or a risk, in runes
	maxValue = 80  // maximum length of the text of one value, in runes
	maxParts = 8   // maximum number of differences that one fact states
)

// clip limits a text to maxText runes.
func clip(text string) string { return limit(text, maxText) }

// limit shortens a text to the given number of runes, which is at least 3. A shortened text ends with "...".
func limit(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-3]) + "..."
}

// domain is the end of the host names of Kubernetes services. Facts omit it.
const domain = ".svc.cluster.local"

// short returns a name without ".svc.cluster.local".
func short(name string) string { return strings.ReplaceAll(name, domain, "") }

// shortFilter returns the name of a filter without the prefix of its kind, such as "envoy.filters.http.".
func shortFilter(name string) string {
	for _, kind := range []string{"envoy.filters.http.", "envoy.filters.network.", "envoy.filters.listener."} {
		if rest, is := strings.CutPrefix(name, kind); is {
			return rest
		}
	}
	return name
}

// shortCluster returns the name of an outbound cluster as "host:port" or "host:port|subset", and the name of an inbound
// cluster as "port N". It returns names of another form unchanged.
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

// plural returns a number with its noun, such as "2 hosts".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if before, is := strings.CutSuffix(noun, "y"); is {
		return fmt.Sprintf("%d %sies", n, before)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// list joins names with commas. If there are more than six names, it joins five and counts the rest.
func list(names []string) string {
	const most = 5
	if rest := len(names) - most; rest > 1 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", rest)
	}
	return strings.Join(names, ", ")
}

// change collects the differences that one fact reports.
type change []string

// compare adds "name old -> new" if two texts differ. An empty text is written as "none".
func (c *change) compare(name, old, new string) {
	if old == new {
		return
	}
	if name != "" {
		name += " "
	}
	*c = append(*c, name+orNone(old)+" -> "+orNone(new))
}

// others adds the differences that the generic comparison of two messages finds (see differences).
func (c *change) others(old, new proto.Message) { *c = append(*c, differences(old, new)...) }

// String joins the first maxParts differences, and counts the others.
func (c change) String() string {
	if rest := len(c) - maxParts; rest > 0 {
		return strings.Join(c[:maxParts], "; ") + fmt.Sprintf("; and %s more", plural(rest, "difference"))
	}
	return strings.Join(c, "; ")
}

// orNone returns a text, or "none" in place of an empty text.
func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// brief returns the result of Brief with at most maxValue runes of JSON.
func brief(m proto.Message) string { return Brief(m, maxValue) }

// Brief describes a message, which must not be nil, in a short text. Durations, unsigned integers, booleans and
// percentages become plain values, such as "15s" or "true". Other messages become JSON on one line, with cut.Cut in
// place of credentials. If the JSON has more than maxRunes runes, it is shortened to this number and ends with "...".
// The number maxRunes must be at least 3. If the message contains an Any of an unknown type, the result is the name of
// the message's own type. Brief does not change the message.
func Brief(m proto.Message, maxRunes int) string {
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
	if public := proto.Clone(m); cut.Message(public) {
		m = public
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil { // an Any has a type that this build does not know
		return string(m.ProtoReflect().Descriptor().Name())
	}
	text := strings.ReplaceAll(strings.ReplaceAll(string(raw), ", ", ","), ": ", ":") // protojson varies its white space
	return limit(text, maxRunes)
}
