package analyze

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// portNames reports ports of Services whose name states no protocol. For a Service of type ExternalName it reports port
// names that can keep a proxy from forwarding to the external name.
func portNames(w *world) {
	for svc := range each[*model.Service](w, model.KindService) {
		if w.ofSystem(svc.Key.Namespace) {
			continue
		}
		external := svc.Spec.GetAliasFor() != ""
		for i, p := range svc.Spec.GetPorts() {
			field := fmt.Sprintf("spec.ports[%d].name", i)
			switch unnamed := p.GetProtocol() == model.Protocol_PROTOCOL_AUTO; {
			case external && (unnamed || strings.ToLower(p.GetName()) == "tcp"):
				w.foundRecord(problem.ExternalNameServiceTypeInvalidPortName, svc, field,
					"port %d of an ExternalName: the name %q may keep a proxy from forwarding to %s; change it to http, tls, "+
						"or for example tcp-db", p.GetNumber(), p.GetName(), svc.Spec.GetAliasFor())
			case unnamed && !external:
				w.foundRecord(problem.PortNameIsNotUnderNamingConvention, svc, field,
					"the name %q of port %d states no protocol: proxies detect it; begin the name with http, grpc, tcp or another "+
						"protocol, or state appProtocol", p.GetName(), p.GetNumber())
			}
		}
	}
}

// target is one port of a Service that selects a workload.
type target struct {
	service string
	port    uint32
	udp     bool
	at      string // targetPort of the Service port: a number or a name
}

// workloadPorts reports workloads that two Services select with contradicting ports: one port with TCP and UDP, or
// two ports for one target port. Pods with an owning workload are left out, because the workload itself is checked.
func workloadPorts(w *world) {
	byLabel := map[labelAt][]*model.Service{}
	for svc := range each[*model.Service](w, model.KindService) {
		if selector := svc.Spec.GetSelector(); len(selector) > 0 {
			k := sorted(selector)[0]
			at := labelAt{svc.Key.Namespace, k, selector[k]}
			byLabel[at] = append(byLabel[at], svc)
		}
	}
	for _, p := range w.pods {
		if p.owned || p.spec.HostNetwork || w.ofSystem(p.meta.Namespace) {
			continue
		}
		var all []target
		for k, v := range p.labels {
			for _, svc := range byLabel[labelAt{p.meta.Namespace, k, v}] {
				if svc.Key.Origin == p.meta.Origin && model.Matches(svc.Spec.GetSelector(), p.labels) {
					all = append(all, targetsOf(svc)...)
				}
			}
		}
		slices.SortFunc(all, func(a, b target) int {
			return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.service, b.service), cmp.Compare(a.at, b.at))
		})
		w.disagreements(p, all)
	}
}

func targetsOf(svc *model.Service) (all []target) {
	for _, p := range svc.Spec.GetPorts() {
		at := p.GetTargetName()
		if at == "" {
			at = strconv.FormatUint(uint64(cmp.Or(p.GetTargetNumber(), p.GetNumber())), 10)
		}
		all = append(all, target{svc.Key.Name, p.GetNumber(), p.GetProtocol() == model.Protocol_PROTOCOL_UDP, at})
	}
	return all
}

// disagreements reports the ports of one workload on which its Services disagree.
func (w *world) disagreements(p *pod, all []target) {
	byPort, byTarget := map[uint32]target{}, map[string]target{}
	for _, t := range all {
		if first, is := byPort[t.port]; !is {
			byPort[t.port] = t
		} else if first.udp != t.udp && first.service != t.service {
			w.found(problem.DeploymentAssociatedToMultipleServices, p.meta, p.field("metadata.labels"),
				"the Services %s and %s select it, one with TCP and one with UDP at port %d", first.service, t.service, t.port)
		}
		if t.udp {
			continue
		}
		if first, is := byTarget[t.at]; !is {
			byTarget[t.at] = t
		} else if first.port != t.port && first.service != t.service {
			w.found(problem.DeploymentConflictingPorts, p.meta, p.field("metadata.labels"),
				"the Services %s (port %d) and %s (port %d) select it with the target port %s: the oldest Service states the protocol "+
					"of that port", first.service, first.port, t.service, t.port, t.at)
		}
	}
}

// inconsistentServices reports Services of one name that differ between clusters.
func inconsistentServices(w *world) {
	first := map[[2]string]*model.Service{}
	for svc := range each[*model.Service](w, model.KindService) {
		key := [2]string{svc.Key.Namespace, svc.Key.Name}
		one := first[key]
		if one == nil {
			first[key] = svc
			continue
		}
		var differ []string
		if one.Spec.GetHeadless() != svc.Spec.GetHeadless() {
			differ = append(differ, "one is headless")
		}
		if (one.Spec.GetAliasFor() == "") != (svc.Spec.GetAliasFor() == "") {
			differ = append(differ, "one is of type ExternalName")
		}
		if !samePorts(one, svc) {
			differ = append(differ, "the ports differ")
		}
		if len(differ) > 0 {
			w.foundRecord(problem.MultiClusterInconsistentService, svc, "spec", "differs from %v, which proxies treat as the same service: %s",
				one.Key, strings.Join(differ, ", "))
		}
	}
}

// samePorts reports whether two Services have equal ports, in any order.
func samePorts(a, b *model.Service) bool {
	of := func(svc *model.Service) []string {
		var all []string
		for _, p := range svc.Spec.GetPorts() {
			all = append(all, p.String())
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(of(a), of(b))
}

// conditions reports Services, ServiceEntries and AuthorizationPolicies with a condition of status "False".
func conditions(w *world) {
	for _, of := range []kind{{"", "Service"}, {model.GroupNetworking, "ServiceEntry"}, {model.GroupSecurity, "AuthorizationPolicy"}} {
		for _, o := range w.byKind[of] {
			if bytes.Contains(o.JSON, []byte(`"conditions"`)) {
				w.negative(o)
			}
		}
	}
}

// negative reports the false conditions of one object.
func (w *world) negative(o *object.Object) {
	var with struct {
		Status struct{ Conditions []metav1.Condition }
	}
	if decode(o, &with) != nil {
		return // the conversion to records reports objects that do not decode
	}
	for _, c := range with.Status.Conditions {
		if c.Status == metav1.ConditionFalse {
			w.found(problem.NegativeConditionStatus, o.ID, fmt.Sprintf("status.conditions[%s]", c.Type), "is False: %s: %s", c.Reason, c.Message)
		}
	}
}
