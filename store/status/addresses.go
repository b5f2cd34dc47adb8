package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ServiceEntries is the kind whose status has addresses.
var ServiceEntries = Kind{networking, "ServiceEntry"}

// Addresses is what status.addresses of ServiceEntries should say: IPs by host, of all their hosts that have some
// (https://istio.io/latest/docs/reference/config/networking/service-entry/#ServiceEntryStatus). The CRD has the list as an atomic one, and it has
// one writer, as with istiod: it is written whole, where it says something else, and the rest of the status stays.
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

// drawAddresses is an object with these addresses in its status; nil: it has them, in whatever order, or is not there.
func drawAddresses(list []any, there *unstructured.Unstructured) *unstructured.Unstructured {
	if there == nil {
		return nil
	}
	status, is := there.Object["status"].(map[string]any)
	if !is && there.Object["status"] != nil {
		return nil // what is there is nothing that can be merged with
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
	return next.DeepCopy() // the list is shared
}

// texts are addresses that can be compared, sorted. Hosts are compared as DNS does.
func texts(list []any) []string {
	out := make([]string, 0, len(list))
	for _, one := range list {
		entry, _ := one.(map[string]any)
		out = append(out, strings.ToLower(text(entry["host"]))+" "+text(entry["value"]))
	}
	slices.Sort(out)
	return out
}
