package inspect

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"navarch.io/navarch/push/xds"
)

// Sync is one proxy of /debug/syncz, with istiod's field names.
type Sync struct {
	Proxy    string                `json:"proxy"`                   // name.namespace
	Type     string                `json:"proxy_type"`              // "sidecar", "router"
	Cluster  string                `json:"cluster_id,omitempty"`    // Kubernetes cluster
	Version  string                `json:"istio_version,omitempty"` // version of the agent
	Synced   map[string]bool       `json:"-"`                       // by xds.Type.Noun, like the maps below
	Sent     map[string]string     `json:"-"`
	Acked    map[string]string     `json:"-"`
	Refused  map[string][]Refused  `json:"-"`
	Withheld map[string][]Withheld `json:"-"`
	Warming  *Warming              `json:"-"`        // nil: no cluster is warming
	Revision int64                 `json:"revision"` // the store's revision of the newest set of the view
	// Replica is the process to which the proxy is connected. With an empty Replica, as on the page, the JSON also lacks
	// the next two fields.
	Replica   string    `json:"replica,omitempty"`
	Node      string    `json:"-"` // node ID
	Connected time.Time `json:"-"` // when the stream began
}

// MarshalJSON returns a flat object. For each type with an entry in Sent it has fields such as cluster_sent,
// cluster_acked and cluster_synced. For each entry of Refused and Withheld it has a field such as cluster_refused or
// cluster_withheld. It has cluster_warming only if Warming is not nil. The error is that of json.Marshal.
func (s Sync) MarshalJSON() ([]byte, error) {
	flat := map[string]any{"proxy": s.Proxy, "proxy_type": s.Type, "revision": s.Revision}
	if s.Cluster != "" {
		flat["cluster_id"] = s.Cluster
	}
	if s.Version != "" {
		flat["istio_version"] = s.Version
	}
	if s.Replica != "" {
		flat["replica"], flat["node"], flat["connected"] = s.Replica, s.Node, s.Connected
	}
	for noun, v := range s.Sent {
		flat[noun+"_sent"], flat[noun+"_acked"], flat[noun+"_synced"] = v, s.Acked[noun], s.Synced[noun]
	}
	for noun, list := range s.Refused {
		flat[noun+"_refused"] = list
	}
	for noun, list := range s.Withheld {
		flat[noun+"_withheld"] = list
	}
	if s.Warming != nil {
		flat[xds.Cluster.Noun()+"_warming"] = s.Warming
	}
	return json.Marshal(flat)
}

// syncz serves /debug/syncz.
func syncz(c Config, _ *http.Request) (any, error) {
	all := []Sync{}
	for _, st := range sorted(c.Streams("")) {
		all = append(all, SyncOf(st, ""))
	}
	return all, nil
}

// SyncOf returns the state of a stream at a replica. The argument replica is Sync.Replica.
func SyncOf(st Stream, replica string) Sync {
	s := Sync{Proxy: st.Proxy, Cluster: st.Cluster, Version: st.Version, Revision: st.Revision,
		Replica: replica, Node: st.Node, Connected: st.Connected,
		Synced: map[string]bool{}, Sent: map[string]string{}, Acked: map[string]string{},
		Refused: map[string][]Refused{}, Withheld: map[string][]Withheld{}}
	s.Type, _, _ = strings.Cut(st.Node, "~")
	s.Warming = st.Types[xds.Cluster].Warming
	for t := range xds.NumTypes {
		if ts := st.Types[t]; ts.Subscribed {
			s.Sent[t.Noun()], s.Acked[t.Noun()], s.Synced[t.Noun()] = ts.Sent, ts.Acked, ts.Synced
			if len(ts.Refused) > 0 {
				s.Refused[t.Noun()] = ts.Refused
			}
			if len(ts.Withheld) > 0 {
				s.Withheld[t.Noun()] = ts.Withheld
			}
		}
	}
	return s
}
