package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"
)

// proxyConfig returns the defaultConfig of mesh.yaml. The annotations proxy.istio.io/config of the WorkloadGroup, and
// then of its template, override the mesh's defaultConfig. The proxyMetadata of all three are merged. The values that
// istioctl adds (istioctl/pkg/workload, createMeshConfig) override the merged values.
func (o *vmOptions) proxyConfig(g *vmGroup, meshYAML []byte) (map[string]any, error) {
	var mesh struct {
		DefaultConfig map[string]any `json:"defaultConfig"`
		TrustDomain   string         `json:"trustDomain"`
	}
	if err := yaml.Unmarshal(meshYAML, &mesh); err != nil {
		return nil, fmt.Errorf("mesh configuration: %w", err)
	}
	proxy := mesh.DefaultConfig
	if proxy == nil {
		proxy = map[string]any{}
	}
	metadata := map[string]any{}
	merge := func() {
		if more, is := proxy["proxyMetadata"].(map[string]any); is {
			maps.Copy(metadata, more)
		}
	}
	merge()
	for _, annotations := range []map[string]string{g.Metadata.Annotations, g.spec.GetMetadata().GetAnnotations()} {
		own := map[string]any{}
		if err := yaml.Unmarshal([]byte(annotations["proxy.istio.io/config"]), &own); err != nil {
			return nil, fmt.Errorf("annotation proxy.istio.io/config: %w", err)
		}
		maps.Copy(proxy, own)
		merge()
	}
	address, _ := proxy["discoveryAddress"].(string)
	proxy["discoveryAddress"] = cmp.Or(address, o.host()+":15012")
	if g.spec.Probe != nil {
		raw, err := g.spec.Probe.MarshalJSON()
		if err != nil {
			return nil, err
		}
		proxy["readinessProbe"] = json.RawMessage(raw)
	}
	if err := o.addMetadata(g, metadata, cmp.Or(mesh.TrustDomain, "cluster.local"), proxy["meshId"]); err != nil {
		return nil, err
	}
	proxy["proxyMetadata"] = metadata
	return proxy, nil
}

// addMetadata adds the agent's variables for the group to metadata, the value of proxyMetadata. It derives the labels
// of the canonical service like istio.io/istio/pkg/kube/labels.
func (o *vmOptions) addMetadata(g *vmGroup, metadata map[string]any, trustDomain string, meshID any) error {
	labels := maps.Clone(g.spec.GetMetadata().GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, g.spec.Template.Labels)
	const service, revision = "service.istio.io/canonical-name", "service.istio.io/canonical-revision"
	labels[service] = cmp.Or(labels[service], labels["app.kubernetes.io/name"], labels["app"], g.Metadata.Name)
	labels[revision] = cmp.Or(labels[revision], labels["app.kubernetes.io/version"], labels["version"], "latest")
	encoded, err := json.Marshal(labels)
	if err != nil {
		return err
	}
	maps.Copy(metadata, map[string]any{"CANONICAL_SERVICE": labels[service],
		"CANONICAL_REVISION": labels[revision], "POD_NAMESPACE": g.Metadata.Namespace,
		"SERVICE_ACCOUNT": g.spec.Template.ServiceAccount, "TRUST_DOMAIN": trustDomain,
		"ISTIO_META_CLUSTER_ID": o.cluster, "ISTIO_META_MESH_ID": "",
		"ISTIO_META_NETWORK": g.spec.Template.Network, "ISTIO_META_WORKLOAD_NAME": g.Metadata.Name, "ISTIO_METAJSON_LABELS": string(encoded)})
	if id, is := meshID.(string); is {
		metadata["ISTIO_META_MESH_ID"] = id
	}
	type port struct {
		Name          string `json:"name,omitempty"`
		ContainerPort uint32 `json:"containerPort"`
	}
	var ports []port
	for _, name := range slices.Sorted(maps.Keys(g.spec.Template.Ports)) {
		ports = append(ports, port{name, g.spec.Template.Ports[name]})
	}
	if len(ports) > 0 {
		raw, err := json.Marshal(ports)
		if err != nil {
			return err
		}
		metadata["ISTIO_META_POD_PORTS"] = string(raw)
	}
	if o.captureDNS {
		metadata["ISTIO_META_DNS_CAPTURE"] = strconv.FormatBool(true)
	}
	if o.register {
		metadata["ISTIO_META_AUTO_REGISTER_GROUP"] = g.Metadata.Name
	}
	return nil
}
