package compare

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"navarch.io/navarch/push/xds"
)

// Types lists the resource types that are compared, clusters first. It must not be modified. Secrets are not compared,
// because they come from the agent or have private keys. Extension configurations are not compared, because the agent
// rewrites them.
var Types = []xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Route}

// message returns an empty message of one of Types.
func message(t xds.Type) proto.Message {
	switch t {
	case xds.Cluster:
		return &clusterv3.Cluster{}
	case xds.Endpoint:
		return &endpointv3.ClusterLoadAssignment{}
	case xds.Listener:
		return &listenerv3.Listener{}
	default:
		return &routev3.RouteConfiguration{}
	}
}

// parsed is a resource as a decoded JSON object. Its keys are the field names of the proto file, in snake case.
type parsed map[string]any

// structURL is the type URL of Struct. A Struct temporarily replaces a message whose type this program does not know.
const structURL = "type.googleapis.com/google.protobuf.Struct"

// parse decodes the JSON of a resource, with field names in snake case or camel case. Messages of unknown types are
// kept unchanged. If unread is not nil, out lacks a part that this program does not know, such as a field. If err is
// not nil, raw is not a resource of the type.
func parse(t xds.Type, raw json.RawMessage) (out parsed, unread, err error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, nil, err
	}
	if fields, is := v.(map[string]any); is {
		delete(fields, "@type") // a dump has the resource as an Any, with a type URL
	}
	stood, err := json.Marshal(standIn(v))
	if err != nil {
		return nil, nil, err
	}
	m := message(t)
	if unread = (protojson.UnmarshalOptions{AllowPartial: true}).Unmarshal(stood, m); unread != nil {
		m = message(t)
		if err := (protojson.UnmarshalOptions{AllowPartial: true, DiscardUnknown: true}).Unmarshal(stood, m); err != nil {
			return nil, nil, err
		}
	}
	out, err = fieldsOf(m)
	return out, unread, err
}

// fieldsOf returns the fields of a message as decoded JSON, and does not change the message.
func fieldsOf(m proto.Message) (parsed, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, AllowPartial: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return withoutStandIns(v).(map[string]any), nil
}

// standIn replaces messages of unknown types by Structs with the same fields, which protojson accepts. It changes v.
func standIn(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = standIn(e)
		}
		if url, is := v["@type"].(string); is {
			if _, err := protoregistry.GlobalTypes.FindMessageByURL(url); err != nil {
				return map[string]any{"@type": structURL, "value": v}
			}
		}
	case []any:
		for i, e := range v {
			v[i] = standIn(e)
		}
	}
	return v
}

// withoutStandIns restores the messages that standIn replaced. It changes v.
func withoutStandIns(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if inner, is := v["value"].(map[string]any); is && v["@type"] == structURL && inner["@type"] != nil {
			return withoutStandIns(inner)
		}
		for k, e := range v {
			v[k] = withoutStandIns(e)
		}
	case []any:
		for i, e := range v {
			v[i] = withoutStandIns(e)
		}
	}
	return v
}

// ownFilters matches the names of Istio's own filters. statistics lists fields that only affect statistics and traces.
var (
	ownFilters = regexp.MustCompile(`istio\.(metadata_exchange|stats|alpn)|istio_authn|peer_metadata|metadata_exchange|istio_extension`)
	statistics = []string{"stat_prefix", "alt_stat_name", "decorator", "traffic_direction", "stats_tags"}
)

// clean returns a copy of a value in a normal form. The copy lacks fields for statistics, Istio's own filters and
// metadata, and empty lists. Lists whose order has no meaning are sorted. The argument path has the names of the fields
// that lead to the value.
func clean(v any, path string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if slices.Contains(statistics, k) || k == "istio" && strings.HasSuffix(path, "filter_metadata") {
				continue
			}
			out[k] = clean(e, path+"."+k)
		}
		return simplified(out)
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			if fields, is := e.(map[string]any); is {
				if name, is := fields["name"].(string); is && ownFilters.MatchString(name) {
					continue
				}
			}
			out = append(out, clean(e, path))
		}
		return out
	}
	return v
}

// simplified brings one message into its normal form, and returns it. If the message only combines rules (such as
// and_rules), and has a single rule, the result is that rule.
func simplified(out map[string]any) any {
	if typed, is := out["match_typed_subject_alt_names"].([]any); is {
		delete(out, "match_typed_subject_alt_names")
		names, _ := out["match_subject_alt_names"].([]any)
		for _, e := range typed {
			if san, is := e.(map[string]any); is && san["san_type"] == "URI" {
				e = san["matcher"]
			}
			names = append(names, e)
		}
		out["match_subject_alt_names"] = names
	}
	for _, k := range []string{"filter_metadata", "metadata", "filter_chain_match", "locality"} {
		if m, is := out[k].(map[string]any); is && len(m) == 0 {
			delete(out, k)
		}
	}
	for k, e := range out {
		if list, is := e.([]any); is && len(list) == 0 {
			delete(out, k)
		}
	}
	if out["health_status"] == "HEALTHY" {
		delete(out, "health_status")
	}
	for k, of := range map[string]string{"and_rules": "rules", "or_rules": "rules", "and_ids": "ids", "or_ids": "ids"} {
		one, _ := out[k].(map[string]any)
		list, _ := one[of].([]any)
		if len(list) == 1 && len(out) == 1 {
			return list[0]
		}
		sortCanonically(list)
	}
	for _, k := range []string{"permissions", "principals", "application_protocols"} {
		if list, is := out[k].([]any); is {
			sortCanonically(list)
		}
	}
	return out
}

func sortCanonically(list []any) {
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(canon(a), canon(b)) })
}

// canon returns decoded JSON as text. Keys are sorted, and the spacing is that of Python's json module, as in the
// fidelity lists (deploy/fidelity).
func canon(v any) string {
	var b strings.Builder
	writeCanon(&b, v)
	return b.String()
}

func writeCanon(b *strings.Builder, v any) {
	separate := func(i int) {
		if i > 0 {
			b.WriteString(", ")
		}
	}
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, k := range sortedKeys(v) {
			separate(i)
			writeCanon(b, k)
			b.WriteString(": ")
			writeCanon(b, v[k])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			separate(i)
			writeCanon(b, e)
		}
		b.WriteByte(']')
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err) // cannot happen: v was decoded from JSON
		}
		b.Write(raw)
	}
}
