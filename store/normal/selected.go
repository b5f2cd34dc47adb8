package normal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// This file makes the Workload records of Pods and WorkloadEntries. The selectors of other objects match these records.

// podRecords returns the Workload record of a Pod that has an address and has not ended. It returns nil for other Pods.
func podRecords(n *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	pod := ctx.Pod(obj.ID)
	if pod == nil || pod.Address == "" || pod.Ended {
		return nil
	}
	if !isIP(pod.Address) {
		r.errorf("status.podIP", "%q is no IP address", pod.Address)
		return nil
	}
	e := &model.Endpoint{Address: pod.Address, Namespace: obj.ID.Namespace, Cluster: n.clusterOf(obj.ID)}
	join(r, e, pod, obj.ID, ctx)
	switch {
	case pod.Terminating:
		e.Health = model.Health_HEALTH_DRAINING
	case pod.NotReady:
		e.Health = model.Health_HEALTH_NOT_READY
	}
	e.Network = n.network(r, obj.ID, pod, e.Address, ctx)
	spec := &model.WorkloadSpec{Source: model.WorkloadSource_WORKLOAD_SOURCE_POD, Endpoint: e, Uid: model.UID(pod.UID)}
	for _, address := range pod.More {
		if !isIP(address) {
			r.warnf(problem.Invalid, "status.podIPs", "%q is no IP address", address)
			continue
		}
		spec.MoreAddresses = append(spec.MoreAddresses, address)
	}
	return r.record(model.KindWorkload, obj, obj.ID.Name, spec)
}

// workloadEntryRecords returns the Workload record of a WorkloadEntry
// (https://istio.io/latest/docs/reference/config/networking/workload-entry/).
func workloadEntryRecords(n *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	entry := &networkingv1.WorkloadEntry{}
	if !r.spec(obj, entry) {
		return nil
	}
	switch path, isUnix := strings.CutPrefix(entry.Address, "unix://"); {
	case entry.Address == "" && entry.Network == "":
		r.errorf("spec.address", "must not be empty without a network")
	case entry.Address == "": // valid, as for endpoints of a ServiceEntry
	case isUnix && len(entry.Ports) > 0:
		r.errorf("spec.ports", "a Unix socket has no ports")
	case isUnix && !isSocketPath(path):
		r.errorf("spec.address", "%q is not an absolute path", entry.Address)
	case isUnix:
	case plainHost(entry.Address) != "":
		r.errorf("spec.address", "%q %s", entry.Address, plainHost(entry.Address))
	}
	r.labels("spec.labels", entry.Labels)
	for _, name := range sortedKeys(entry.Ports) {
		r.name("spec.ports["+name+"]", name)
		r.port("spec.ports["+name+"]", entry.Ports[name])
	}
	healthy := machineHealth(r, obj)
	if r.spoiled {
		return nil
	}
	// As in istiod, the labels in the object's metadata are added to the labels in its spec, and have priority.
	labels := maps.Clone(entry.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, obj.Labels)
	entry.Labels = labels
	e := n.inlineEndpoint(obj.ID, entry)
	e.Workload = cmp.Or(labels[workloadNameLabel], obj.ID.Name)
	if !healthy {
		e.Health = model.Health_HEALTH_NOT_READY
	}
	return r.record(model.KindWorkload, obj, model.WorkloadEntryPrefix+obj.ID.Name,
		&model.WorkloadSpec{Source: model.WorkloadSource_WORKLOAD_SOURCE_WORKLOAD_ENTRY, Endpoint: e})
}

// healthChecked is the annotation of WorkloadEntries whose status contains the health of the workload.
const healthChecked = "proxy.istio.io/health-checks-enabled"

// machineHealth reports whether a WorkloadEntry is healthy. A WorkloadEntry with the annotation healthChecked is
// healthy only if the condition Healthy in its status is True.
func machineHealth(r *report, obj *object.Object) bool {
	if obj.Annotations[healthChecked] != "true" {
		return true
	}
	var whole struct {
		Status struct {
			Conditions []struct{ Type, Status string } `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(obj.JSON, &whole); err != nil {
		r.errorf("status", "%v", err)
	}
	for i, c := range whole.Status.Conditions {
		if c.Type != "Healthy" {
			continue
		}
		if c.Status != "True" && c.Status != "False" && c.Status != "Unknown" {
			r.warnf(problem.Invalid, fmt.Sprintf("status.conditions[%d].status", i),
				"%q is not True, False or Unknown: the workload counts as unhealthy", c.Status)
		}
		return c.Status == "True"
	}
	return false
}
