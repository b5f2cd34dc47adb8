package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ServiceEntries is the kind ServiceEntry, whose status contains addresses. It must not be modified.
var ServiceEntries = Kind{networking, "ServiceEntry"}

// Addresses returns the target states of ServiceEntries with the IPs of their hosts in status.addresses
// (https://istio.io/latest/docs/reference/config/networking/service-entry/#ServiceEntryStatus). The parameter all maps
// each ServiceEntry to its hosts and their IPs. A ServiceEntry without hosts gets no target state. A stored list with
// other addresses is replaced as a whole, as by istiod, because the CRD declares the list atomic. A list that differs
// only in its order is not replaced. Other fields of the status stay unchanged. A ServiceEntry that does not exist is
// not created. A malformed status stays unchanged.
func Addresses(all map[Key]map[string][]string) map[Key]Desired[unstructured.Unstructured] {
	out := make(map[Key]Desired[unstructured.Unstructured], len(all))
	for key, hosts := range all {
		if len(hosts) == 0 {
			continue
		}
		list := []any{}
		for _, host := range slices.Sorted(maps.Keys(hosts)) {
			for _, address := range hosts[host] {
				list = append(list, map[string]any{"value": address, "host": host})
			}
		}
		out[key] = Desired[unstructured.Unstructured]{Version: fmt.Sprint(list),
			Draw: func(there *unstructured.Unstructured, _ int64) *unstructured.Unstructured {
				return drawAddresses(list, there)
			}}
	}
	return out
}

// drawAddresses returns the object with these addresses in its status. It returns nil if the status has the addresses
// in any order, if the status is malformed, or if the object is absent.
func drawAddresses(list []any, there *unstructured.Unstructured) *unstructured.Unstructured {
	if there == nil {
		return nil
	}
	status, is := there.Object["status"].(map[string]any)
	if !is && there.Object["status"] != nil {
		return nil // the status is malformed, so nothing can be merged into it
	}
	have, _ := status["addresses"].([]any)
	if slices.Equal(texts(have), texts(list)) {
		return nil
	}
	next := there.DeepCopy()
	merged := map[string]any{}
	maps.Copy(merged, status)
	merged["addresses"] = list
	next.Object["status"] = merged
	return next.DeepCopy() // a copy of list too, because other calls use list
}

// texts returns the addresses as sorted texts that can be compared. Host names are compared without regard to case, as
// in DNS.
func texts(list []any) []string {
	out := make([]string, 0, len(list))
	for _, one := range list {
		entry, _ := one.(map[string]any)
		out = append(out, strings.ToLower(text(entry["host"]))+" "+text(entry["value"]))
	}
	slices.Sort(out)
	return out
}
