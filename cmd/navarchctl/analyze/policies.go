package analyze

import (
	"fmt"
	"slices"

	meshv1 "istio.io/api/mesh/v1alpha1"
	securityv1 "istio.io/api/security/v1beta1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/problem"
)

// gatewaySelectors reports objects that select Pods of a Gateway of the Gateway API by labels, instead of naming the
// Gateway.
func gatewaySelectors(w *world) {
	byNamespace := map[string][]map[string]string{}
	for l := range each[*model.Workload](w, model.KindWorkload) {
		if labels := l.Spec.GetEndpoint().GetLabels(); labels[model.GatewayName] != "" {
			byNamespace[l.Key.Namespace] = append(byNamespace[l.Key.Namespace], labels)
		}
	}
	for _, of := range []model.Kind{model.KindAuthorizationPolicy, model.KindRequestAuthentication, model.KindTelemetry,
		model.KindWasmPlugin} {
		for _, r := range w.records[of] {
			selector, targets := selectorOf(r)
			for _, labels := range byNamespace[r.Meta().Key.Namespace] {
				if len(selector) > 0 && !targets && model.Matches(selector, labels) {
					w.foundRecord(problem.IneffectiveSelector, r, "spec.selector",
						"selects Pods of Gateway %s of the Gateway API: name the Gateway in spec.targetRefs; "+
							"an istiod may be told to ignore such selectors", labels[model.GatewayName])
					break
				}
			}
		}
	}
}

// selectorOf returns the labels that an object selects. targets reports whether the object names targets instead.
func selectorOf(r model.Record) (labels map[string]string, targets bool) {
	switch r := r.(type) {
	case *model.Policy:
		return r.Spec.GetSelector(), len(r.Spec.GetGateways()) > 0
	case *model.Telemetry:
		return r.Spec.GetSelector().GetMatchLabels(), len(r.Spec.GetTargetRefs()) > 0
	case *model.TrafficExtension:
		return r.Spec.GetSelector().GetMatchLabels(), len(r.Spec.GetTargetRefs()) > 0
	}
	return nil, false
}

// closedPolicies reports policies that refuse all requests, because they are invalid or cannot be enforced.
func closedPolicies(w *world) {
	for _, of := range []model.Kind{model.KindAuthorizationPolicy, model.KindPeerAuthentication, model.KindRequestAuthentication} {
		for p := range each[*model.Policy](w, of) {
			if !p.Spec.GetClosed() {
				continue
			}
			whom := "the workloads that it selects"
			if len(p.Spec.GetSelector()) == 0 {
				whom = "all workloads of namespace " + p.Key.Namespace
				if p.Spec.GetMeshWide() {
					whom = "all workloads of the mesh"
				}
			}
			w.foundRecord(problem.PolicyCloses, p, "spec", "is invalid or cannot be enforced: %s refuse every request", whom)
		}
	}
}

// rootNamespace returns the root namespace of the mesh.
func (w *world) rootNamespace() string {
	for m := range each[*model.Mesh](w, model.KindMesh) {
		return m.Spec.GetRootNamespace()
	}
	return model.DefaultMesh().Spec.GetRootNamespace()
}

// unprovidedLogs reports entries of accessLogging for which neither the entry, nor a more general Telemetry, nor the
// mesh configuration names a provider. The first entry of the root namespace's general Telemetry is left out, because
// the conversion to records reports it.
func unprovidedLogs(w *world) {
	root := w.rootNamespace()
	for m := range each[*model.Mesh](w, model.KindMesh) {
		if len(m.Spec.GetDefaultProviders().GetAccessLogging()) > 0 || m.Spec.GetAccessLogFile() != "" {
			return
		}
	}
	provided := map[string]bool{} // namespaces whose Telemetry without a selector names a provider
	for t := range each[*model.Telemetry](w, model.KindTelemetry) {
		if general(t) && slices.ContainsFunc(t.Spec.GetAccessLogging(),
			func(l *telemetryv1.AccessLogging) bool { return len(l.GetProviders()) > 0 }) {
			provided[t.Key.Namespace] = true
		}
	}
	for t := range each[*model.Telemetry](w, model.KindTelemetry) {
		top := general(t) && t.Key.Namespace == root
		if !top && (provided[root] || !general(t) && provided[t.Key.Namespace]) {
			continue
		}
		for i, l := range t.Spec.GetAccessLogging() {
			if len(l.GetProviders()) == 0 && !l.GetDisabled().GetValue() && (!top || i > 0) {
				w.foundRecord(problem.InvalidTelemetryProvider, t, fmt.Sprintf("spec.accessLogging[%d]", i),
					"names no provider, and neither a Telemetry above it nor the mesh configuration does: it has no effect")
			}
		}
	}
}

// general reports whether a Telemetry has neither a selector nor targets.
func general(t *model.Telemetry) bool {
	return len(t.Spec.GetSelector().GetMatchLabels())+len(t.Spec.GetTargetRefs()) == 0
}

// keyServers reports Deployments of istiod that let istiod fetch the keys of tokens (jwksUri) from any address.
func keyServers(w *world) {
	var fetched []string
	for p := range each[*model.Policy](w, model.KindRequestAuthentication) {
		if slices.ContainsFunc(model.Authentication(p).GetJwtRules(), func(r *securityv1.JWTRule) bool { return r.GetJwksUri() != "" }) {
			fetched = append(fetched, p.Key.Namespace+"/"+p.Key.Name)
		}
	}
	slices.Sort(fetched)
	for _, p := range w.pods {
		if len(fetched) == 0 || p.real || p.object.ID.Kind != "Deployment" || p.object.Labels["app"] != "istiod" ||
			p.object.Labels["app.kubernetes.io/name"] == "navarchd" {
			continue // navarchd never fetches from addresses of its machine and of the clusters
		}
		if !slices.ContainsFunc(p.spec.Containers, restricted) {
			w.found(problem.JwksUriFetchUnrestricted, p.meta, p.field("spec.containers"),
				"BLOCKED_CIDRS_IN_JWKS_URIS is not set: the authors of %s can make istiod send requests to any address", some(fetched))
		}
	}
}

// restricted reports whether a container's environment states address ranges that keys must not be fetched from.
func restricted(c corev1.Container) bool {
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "BLOCKED_CIDRS_IN_JWKS_URIS" && e.Value != "" })
}

// remoteCluster is the label of Secrets with credentials for other clusters. The data keys of such a Secret are names
// of clusters.
const remoteCluster = "istio/multiCluster"

// registries reports networks of the mesh configuration whose fromRegistry is not a cluster of the mesh.
func registries(w *world) {
	n := normal.New(w.Normal)
	id := n.MeshID()
	o := w.byID[w.id(id.Group, id.Kind, id.Namespace, id.Name)]
	if o == nil || !w.knows("Secret") {
		return
	}
	clusters := map[string]bool{n.Cluster: true, "Kubernetes": true, "External": true, "Mock": true}
	for of := range w.byID {
		clusters[of.Origin.Cluster()] = true
	}
	for o, s := range decoded[corev1.Secret](w, "", "Secret") {
		for name := range s.Data {
			clusters[name] = clusters[name] || o.Labels[remoteCluster] == "true"
		}
	}
	networks := n.ParseMesh(o).Networks
	for _, name := range sorted(networks.GetNetworks()) {
		for i, e := range networks.GetNetworks()[name].GetEndpoints() {
			if _, is := e.GetNe().(*meshv1.Network_NetworkEndpoints_FromRegistry); is && !clusters[e.GetFromRegistry()] {
				w.found(problem.UnknownMeshNetworksServiceRegistry, o.ID, fmt.Sprintf("data.meshNetworks.networks[%s].endpoints[%d].fromRegistry",
					name, i),
					"no cluster is called %q: the network has no endpoints of this cluster", e.GetFromRegistry())
			}
		}
	}
}
