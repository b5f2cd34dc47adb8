package normal

import (
	"cmp"
	"fmt"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// workloadGroupRecords returns the record of a WorkloadGroup, from which the control plane makes WorkloadEntries. The
// default service account is "default", as for `istioctl x workload entry configure`
// (https://istio.io/latest/docs/reference/config/networking/workload-group/). The record lacks the probe, because
// agents read the probe from the machine's mesh.yaml.
func workloadGroupRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	group := &networkingv1.WorkloadGroup{}
	if !r.spec(obj, group) {
		return nil
	}
	if group.Template == nil {
		r.requiredf("spec.template", "must not be empty: it states the service account of the machines")
	}
	r.labels("spec.metadata.labels", group.Metadata.GetLabels())
	r.labels("spec.template.labels", group.Template.GetLabels())
	for _, name := range sortedKeys(group.Template.GetPorts()) {
		r.port("spec.template.ports["+name+"]", group.Template.Ports[name])
	}
	checkReadinessProbe(r, "spec.probe", group.Probe)
	if r.spoiled {
		return nil
	}
	account := cmp.Or(group.Template.ServiceAccount, "default")
	if group.Template.Address != "" {
		r.warnf(problem.NoEffect, "spec.template.address", "is ignored: each machine has its own address")
	}
	group.Template.Address, group.Template.ServiceAccount, group.Probe = "", account, nil
	return r.record(model.KindWorkloadGroup, obj, obj.ID.Name, group)
}

// checkReadinessProbe validates a probe by the rules of Istio's webhook (validateReadinessProbe in
// pkg/config/validation). In addition, gRPC probes are valid. A nil probe is valid.
func checkReadinessProbe(r *report, at string, probe *networkingv1.ReadinessProbe) {
	if probe == nil {
		return
	}
	for _, of := range []struct {
		field string
		value int32
	}{{"initialDelaySeconds", probe.InitialDelaySeconds}, {"timeoutSeconds", probe.TimeoutSeconds}, {"periodSeconds", probe.PeriodSeconds},
		{"successThreshold", probe.SuccessThreshold}, {"failureThreshold", probe.FailureThreshold}} {
		if of.value < 0 {
			r.errorf(at+"."+of.field, "%d is negative", of.value)
		}
	}
	switch m := probe.HealthCheckMethod.(type) {
	case *networkingv1.ReadinessProbe_HttpGet:
		r.port(at+".httpGet.port", m.HttpGet.GetPort())
		if s := m.HttpGet.GetScheme(); s != "" && s != "HTTP" && s != "HTTPS" {
			r.errorf(at+".httpGet.scheme", "%q is not HTTP or HTTPS", s)
		}
		for i, h := range m.HttpGet.GetHttpHeaders() {
			checkHeaderName(r, fmt.Sprintf("%s.httpGet.httpHeaders[%d].name", at, i), h.GetName())
		}
	case *networkingv1.ReadinessProbe_TcpSocket:
		r.port(at+".tcpSocket.port", m.TcpSocket.GetPort())
	case *networkingv1.ReadinessProbe_Exec:
		if len(m.Exec.GetCommand()) == 0 {
			r.requiredf(at+".exec.command", "must not be empty")
		}
	case *networkingv1.ReadinessProbe_Grpc:
		r.port(at+".grpc.port", m.Grpc.GetPort())
	default:
		r.requiredf(at, "one of httpGet, tcpSocket, exec and grpc is needed")
	}
}
