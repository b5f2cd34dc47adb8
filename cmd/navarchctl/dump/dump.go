// Package dump reads what a proxy has: the config_dump of Envoy's admin interface or of navarchd, and Envoy's /clusters.
//
// Owns: nothing.  Reads: bytes that anybody may have written.  Never: fails as a whole because of one resource that it does
// not understand; a socket, a file.
package dump

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

// Dump is the resources of one proxy by type, in the order of the source.
type Dump struct {
	Resources [xds.NumTypes][]Resource
	// Has says which types have a section, also an empty one. Envoy leaves endpoints out unless it is asked with include_eds.
	Has [xds.NumTypes]bool
	// Hosts are the endpoints as Envoy's /clusters has them; nil: it was not read.
	Hosts []Host
}

// Resource is one resource of a dump.
type Resource struct {
	Type    xds.Type
	Name    string
	Version string // empty: not known
	// Raw is the resource as the dump has it; nil: the proxy has none, since every version was refused or is withheld.
	Raw json.RawMessage
	// Message is the same decoded, without what this program does not know; nil where Raw is, or where Problem says why.
	Message proto.Message
	Problem error
	// Where says in which list of Envoy's it is: "static", "warming", "draining"; empty: active.
	Where string
	// Failure is a version that is not what the proxy has; nil: none.
	Failure *Failure
}

// Failure is a version that the proxy refused, or that is withheld from it.
type Failure struct {
	Withheld bool   `json:"withheld,omitempty"`
	Version  string `json:"version,omitempty"`
	Details  string `json:"details"`
	Last     string `json:"last_update_attempt,omitempty"` // RFC 3339
}

// Word is REFUSED or WITHHELD.
func (f *Failure) Word() string {
	if f.Withheld {
		return "WITHHELD"
	}
	return "REFUSED"
}

// object is a JSON object whose fields are not read yet.
type object map[string]json.RawMessage

// field is a field by its proto name, also where it is written in proto's JSON name.
func (o object) field(name string) json.RawMessage {
	if raw, ok := o[name]; ok {
		return raw
	}
	first, rest, _ := strings.Cut(name, "_")
	for part := range strings.SplitSeq(rest, "_") {
		if part != "" {
			first += strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return o[first]
}

// text is a field that is a string; empty where it is not.
func (o object) text(name string) (s string) {
	_ = json.Unmarshal(o.field(name), &s)
	return s
}

// object is a field that is an object; nil where it is not.
func (o object) object(name string) (out object) {
	if json.Unmarshal(o.field(name), &out) != nil {
		return nil
	}
	return out
}

// list is a field that is a list of objects; elements of it that are none are nil.
func (o object) list(name string) []object {
	var raws []json.RawMessage
	if json.Unmarshal(o.field(name), &raws) != nil {
		return nil
	}
	out := make([]object, len(raws))
	for i, raw := range raws {
		if json.Unmarshal(raw, &out[i]) != nil {
			out[i] = nil
		}
	}
	return out
}

// section is where one type stands in a dump: the message's name, the lists in it, and the field of an entry that has the
// resource (https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/config_dump_shared.proto).
type section struct {
	message, body string
	lists         []list
}

type list struct{ field, where string }

var sections = [xds.NumTypes]section{
	xds.Cluster: {"envoy.admin.v3.ClustersConfigDump", "cluster",
		[]list{{"static_clusters", "static"}, {"dynamic_active_clusters", ""}, {"dynamic_warming_clusters", "warming"}}},
	xds.Endpoint: {"envoy.admin.v3.EndpointsConfigDump", "endpoint_config",
		[]list{{"static_endpoint_configs", "static"}, {"dynamic_endpoint_configs", ""}}},
	xds.Listener: {"envoy.admin.v3.ListenersConfigDump", "listener",
		[]list{{"static_listeners", "static"}, {"dynamic_listeners", ""}}},
	xds.Route: {"envoy.admin.v3.RoutesConfigDump", "route_config",
		[]list{{"static_route_configs", "static"}, {"dynamic_route_configs", ""}}},
	xds.Secret: {"envoy.admin.v3.SecretsConfigDump", "secret",
		[]list{{"static_secrets", "static"}, {"dynamic_active_secrets", ""}, {"dynamic_warming_secrets", "warming"}}},
	xds.Extension: {"envoy.admin.v3.EcdsConfigDump", "ecds_filter", []list{{"ecds_filters", ""}}},
}

// Read reads Envoy's /config_dump, navarchd's /debug/config_dump or Envoy's /clusters?format=json. Sections and resources that
// it does not know are passed over. Errors: this is none of them.
func Read(raw []byte) (*Dump, error) {
	var top object
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, fmt.Errorf("this is no JSON object: %w", err)
	}
	d := &Dump{}
	switch {
	case top.field("cluster_statuses") != nil:
		if err := d.ReadClusters(raw); err != nil {
			return nil, err
		}
		return d, nil
	case top.field("configs") == nil:
		return nil, errors.New(`this is no config_dump: it has no field "configs"`)
	}
	for _, config := range top.list("configs") {
		name := config.text("@type")
		name = name[strings.LastIndexByte(name, '/')+1:]
		t := slices.IndexFunc(sections[:], func(s section) bool { return s.message == name })
		if t < 0 {
			continue
		}
		d.Has[t] = true
		for _, l := range sections[t].lists {
			for _, e := range config.list(l.field) {
				d.add(xds.Type(t), l.where, e)
			}
		}
	}
	return d, nil
}

// add reads one entry. A listener may stand in it several times: active, and the next or the last one.
func (d *Dump) add(t xds.Type, where string, e object) {
	bodies := []struct {
		where string
		in    object
	}{{where, e}}
	if t == xds.Listener && where == "" {
		bodies[0].in = e.object("active_state")
		for _, state := range []string{"warming", "draining"} {
			if in := e.object(state + "_state"); in != nil {
				bodies = append(bodies, struct {
					where string
					in    object
				}{state, in})
			}
		}
	}
	failure, failed := failureOf(e)
	added := false
	for i, b := range bodies {
		r := Resource{Type: t, Where: b.where, Version: b.in.text("version_info"), Raw: b.in.field(sections[t].body)}
		if bytes.Equal(r.Raw, []byte("null")) {
			r.Raw = nil
		}
		if r.Raw == nil && (i > 0 || failure == nil && len(bodies) > 1) {
			continue
		}
		if r.Raw != nil {
			r.Message, r.Problem = decode(t, r.Raw)
		}
		r.Name = cmp.Or(nameOf(t, r.Raw), e.text("name"), nameOf(t, failed))
		if !added {
			r.Failure = failure
		}
		if t == xds.Secret && failure != nil && where == "warming" {
			r.Raw, r.Message, r.Problem = nil, nil, nil // the proxy has none: only the name of what was refused stands there
		}
		added = true
		d.Resources[t] = append(d.Resources[t], r)
	}
}

// nameOf is the name in a resource.
func nameOf(t xds.Type, raw json.RawMessage) string {
	var o object
	if raw == nil || json.Unmarshal(raw, &o) != nil {
		return ""
	}
	if t == xds.Endpoint {
		return o.text("cluster_name")
	}
	return o.text("name")
}

// failureOf is the error state of an entry, and the resource that is meant; nil: there is none.
func failureOf(e object) (*Failure, json.RawMessage) {
	state := e.object("error_state")
	if state == nil {
		return nil, nil
	}
	f := &Failure{Version: state.text("version_info"), Details: state.text("details"), Last: state.text("last_update_attempt")}
	f.Withheld = strings.HasPrefix(f.Details, inspect.WithheldDetails)
	return f, state.field("failed_configuration")
}
