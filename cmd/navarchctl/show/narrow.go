package show

import (
	"encoding/json"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"navarch.io/navarch/cmd/navarchctl/dump"
)

// Narrowed returns the JSON of a resource. For an assignment (the endpoints of a cluster), the JSON has only the
// endpoints that Address, Port and Status of the filter select. Localities without such endpoints are removed. The
// result is r.Raw itself, which may be nil, in three cases: none of the three fields is set, r is not a decoded
// assignment, or r.Raw has another form. The resource stays unchanged.
func Narrowed(r dump.Resource, f Filter) json.RawMessage {
	a, ok := r.Message.(*endpointv3.ClusterLoadAssignment)
	if !ok || f.Address+f.Status == "" && f.Port == 0 {
		return r.Raw
	}
	raw, err := elements(r.Raw, []string{"endpoints"}, func(i int, group json.RawMessage) (json.RawMessage, error) {
		taken := 0
		group, err := elements(group, []string{"lb_endpoints", "lbEndpoints"}, func(j int, endpoint json.RawMessage) (json.RawMessage, error) {
			e := a.GetEndpoints()[i].GetLbEndpoints()[j]
			if !f.takesEndpoint(e.GetEndpoint().GetAddress(), healthOf(e.GetHealthStatus())) {
				return nil, nil
			}
			taken++
			return endpoint, nil
		})
		if taken == 0 {
			return nil, err
		}
		return group, err
	})
	if err != nil {
		return r.Raw
	}
	return raw
}

// elements replaces each element of a list in a JSON object by the result of the function keep, and returns the object.
// It removes an element whose result is nil. The argument names has the possible names of the list's field. Errors:
// keep fails, raw is not an object, or the field is not a list.
func elements(raw json.RawMessage, names []string,
	keep func(i int, element json.RawMessage) (json.RawMessage, error)) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	for _, name := range names {
		if fields[name] == nil {
			continue
		}
		var all []json.RawMessage
		if err := json.Unmarshal(fields[name], &all); err != nil {
			return nil, err
		}
		kept := []json.RawMessage{}
		for i, element := range all {
			one, err := keep(i, element)
			if err != nil {
				return nil, err
			}
			if one != nil {
				kept = append(kept, one)
			}
		}
		var err error
		if fields[name], err = json.Marshal(kept); err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}
