package main

import (
	"encoding/json"
	"fmt"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

// proxyStatus is one item of /api/v1/syncz, or of /debug/syncz.
type proxyStatus struct {
	raw      json.RawMessage
	replica  string      // the process that reported the proxy; empty: unknown
	Proxy    string      `json:"proxy"`
	Node     string      `json:"node"` // node ID; empty: unknown
	Cluster  string      `json:"cluster_id"`
	Version  string      `json:"istio_version"`
	Revision json.Number `json:"revision"`
	types    [xds.NumTypes]inspect.TypeStatus
}

// UnmarshalJSON decodes a proxy with the fields of each type, such as cluster_sent and cluster_acked. Missing fields
// are zero. A missing cluster_synced is computed from cluster_sent and cluster_acked, and likewise for the other types.
// The error reports JSON that does not decode. UnmarshalJSON copies raw.
func (p *proxyStatus) UnmarshalJSON(raw []byte) error {
	type plain proxyStatus
	if err := json.Unmarshal(raw, (*plain)(p)); err != nil {
		return err
	}
	p.raw = append([]byte(nil), raw...)
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	if own, ok := fields["replica"]; ok {
		if err := json.Unmarshal(own, &p.replica); err != nil {
			return fmt.Errorf("replica: %w", err)
		}
	}
	for t := range xds.NumTypes {
		s := &p.types[t]
		_, s.Subscribed = fields[t.Noun()+"_sent"]
		_, states := fields[t.Noun()+"_synced"]
		for suffix, into := range map[string]any{"_synced": &s.Synced,
			"_sent": &s.Sent, "_acked": &s.Acked, "_refused": &s.Refused, "_withheld": &s.Withheld, "_warming": &s.Warming} {
			if field, ok := fields[t.Noun()+suffix]; ok {
				if err := json.Unmarshal(field, into); err != nil {
					return fmt.Errorf("%s%s: %w", t.Noun(), suffix, err)
				}
			}
		}
		if !states { // a replica of an older version lacks the field
			s.Synced = s.Sent != "" && s.Sent == s.Acked
		}
	}
	return nil
}

// MarshalJSON returns the JSON that UnmarshalJSON decoded. The field "replica" is added if the replica is known. The
// error reports JSON that does not decode.
func (p proxyStatus) MarshalJSON() ([]byte, error) {
	if p.replica == "" {
		return p.raw, nil
	}
	var fields map[string]any
	if err := json.Unmarshal(p.raw, &fields); err != nil {
		return nil, err
	}
	fields["replica"] = p.replica
	return json.Marshal(fields)
}
