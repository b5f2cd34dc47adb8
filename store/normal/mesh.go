package normal

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1 "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/proxyconfig"
)

// MeshID returns the ID of the ConfigMap with the mesh configuration, without an origin. Its name is istio for revision
// "" or "default", and otherwise istio-REVISION. Its namespace is the system namespace.
func (n *Normalizer) MeshID() object.ID {
	name := "istio"
	if n.Revision != "" && n.Revision != "default" {
		name += "-" + n.Revision
	}
	return object.ID{Kind: "ConfigMap", Namespace: n.SystemNamespace, Name: name}
}

// IsMesh reports whether an object is the ConfigMap with the mesh configuration, in the config cluster.
func (n *Normalizer) IsMesh(id object.ID) bool { return n.named(id) && id.Origin.Cluster() == "" }

// The keys of the mesh configuration and of the networks in its ConfigMap.
const (
	meshKey     = "mesh"
	networksKey = "meshNetworks"
)

// configMapRecords returns the record of a ConfigMap of the config cluster with certificates of authorities. It warns
// of a mesh configuration in the wrong namespace. It skips the mesh configuration in effect, which ParseMesh parses.
func configMapRecords(n *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	want := n.MeshID()
	if n.named(obj.ID) {
		return nil
	}
	if obj.ID.Name == want.Name && bytes.Contains(obj.JSON, []byte(`"mesh":`)) {
		r.warnf(problem.NoEffect, "metadata.namespace", "not acted on: the mesh configuration is read from namespace %s", want.Namespace)
	}
	if obj.ID.Origin.Cluster() != "" { // like Istio, which reads authorities from the config cluster alone
		return nil
	}
	return authorityRecords(r, obj)
}

// Mesh is a parsed mesh configuration. Config or Networks is nil if this part is invalid, and both are nil if the
// ConfigMap cannot be decoded. The previous version of such a part remains in effect. Networks is empty, not nil, if
// key meshNetworks is missing.
type Mesh struct {
	Config   *meshv1.MeshConfig
	Networks *meshv1.MeshNetworks
	Problems []object.Problem
	// Unsaid reports that key mesh is missing in a decoded ConfigMap. Config then has the defaults, for callers without
	// a previous version.
	Unsaid bool
}

// ParseMesh parses the keys mesh and meshNetworks of the ConfigMap, and applies the defaults. Invalid content is
// reported as Problems, and not as an error. The result belongs to the caller.
func (n *Normalizer) ParseMesh(obj *object.Object) Mesh {
	r := &report{id: obj.ID, location: obj.Location}
	var whole struct {
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(obj.JSON, &whole); err != nil {
		r.errorf("data", "%v", err)
		return Mesh{Problems: r.problems}
	}
	user := &meshv1.MeshConfig{}
	text, said := whole.Data[meshKey]
	out := Mesh{Unsaid: !said}
	if stated, ok := r.yaml("data.mesh", text, user); ok {
		out.Config = overlay(user, stated)
		checkMesh(r, out.Config, n.Signers)
		if r.spoiled {
			out.Config = nil
		}
	}
	r.spoiled = false
	networks := &meshv1.MeshNetworks{}
	if _, ok := r.yaml("data.meshNetworks", whole.Data[networksKey], networks); ok {
		if n.networkProblems(r, networks); !r.spoiled {
			out.Networks = networks
		}
	}
	out.Problems = r.problems
	return out
}

// MeshRecord returns the record of a mesh configuration. The record keeps config, which must not change afterwards.
// Errors are those of model.New.
func MeshRecord(config *meshv1.MeshConfig) (model.Record, error) {
	return model.New(model.MeshKey, 0, config)
}

// yaml decodes a YAML text into a message, and returns the top-level fields that the text sets; false: the text is
// invalid.
func (r *report) yaml(path, text string, into proto.Message) ([]protoreflect.FieldDescriptor, bool) {
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		r.errorf(path, "%v", err)
		return nil, false
	}
	if string(raw) == "null" {
		return nil, true
	}
	if !r.message(raw, path, into) {
		return nil, false
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		r.errorf(path, "%v", err)
		return nil, false
	}
	var stated []protoreflect.FieldDescriptor
	fields := into.ProtoReflect().Descriptor().Fields()
	for _, name := range sortedKeys(top) {
		fd := fields.ByJSONName(name)
		if fd == nil {
			fd = fields.ByName(protoreflect.Name(name))
		}
		if fd != nil && string(top[name]) != "null" {
			stated = append(stated, fd)
		}
	}
	return stated, true
}

// overlay returns the defaults, with the stated top-level fields replaced by the user's fields. A field is replaced as
// a whole, even by false or 0. Namespace, trust domain, timeout and ports have no empty values: their defaults replace
// such values.
func overlay(user *meshv1.MeshConfig, stated []protoreflect.FieldDescriptor) *meshv1.MeshConfig {
	config := model.MeshDefaults()
	to, from := config.ProtoReflect(), user.ProtoReflect()
	for _, fd := range stated {
		if from.Has(fd) {
			to.Set(fd, from.Get(fd))
		} else {
			to.Clear(fd)
		}
	}
	defaults := model.MeshDefaults()
	if config.RootNamespace == "" {
		config.RootNamespace = defaults.RootNamespace
	}
	if config.TrustDomain == "" {
		config.TrustDomain = defaults.TrustDomain
	}
	if config.ConnectTimeout == nil {
		config.ConnectTimeout = defaults.ConnectTimeout
	}
	if config.ProxyListenPort == 0 {
		config.ProxyListenPort = defaults.ProxyListenPort
	}
	if config.ProxyInboundListenPort == 0 {
		config.ProxyInboundListenPort = defaults.ProxyInboundListenPort
	}
	return config
}

// checkMesh validates a mesh configuration, and removes invalid parts that can be omitted.
func checkMesh(r *report, config *meshv1.MeshConfig, signers bool) {
	r.duration1ms("data.mesh.connectTimeout", config.ConnectTimeout, false)
	r.port("data.mesh.proxyListenPort", uint32(config.ProxyListenPort))
	r.port("data.mesh.proxyInboundListenPort", uint32(config.ProxyInboundListenPort))
	if at := "data.mesh.proxyHttpPort"; config.ProxyHttpPort != 0 {
		r.port(at, uint32(config.ProxyHttpPort))
		if config.ProxyHttpPort == config.ProxyListenPort || config.ProxyHttpPort == config.ProxyInboundListenPort {
			r.duplicatef(at, "port %d is where the proxy takes redirected connections", config.ProxyHttpPort)
		}
	}
	checkRetries(r, "data.mesh.defaultHttpRetryPolicy", config.DefaultHttpRetryPolicy)
	checkZones(r, "data.mesh.zoneAwareLbSetting", config.ZoneAwareLbSetting)
	checkLocality(r, "data.mesh.localityLbSetting", config.LocalityLbSetting)
	for i, ca := range config.GetCaCertificates() {
		checkCACertificate(r, fmt.Sprintf("data.mesh.caCertificates[%d]", i), ca, signers)
	}
	checkMeshTLS(r, config)
	checkUnknown(r, config.GetOutboundTrafficPolicy())
	checkServiceSettings(r, config)
	checkVisibility(r, config.GetServiceEntryVisibility())
	checkExtensionProviders(r, config)
	checkLogFormats(r, config)
	checkDefaultProviders(r, config)
	checkProxyConfig(r, "data.mesh.defaultConfig", config.GetDefaultConfig())
	checkPool(r, "data.mesh.defaultTrafficPolicy.connectionPool", config.GetDefaultTrafficPolicy().GetConnectionPool())
	checkOutlier(r, "data.mesh.defaultTrafficPolicy.outlierDetection", config.GetDefaultTrafficPolicy().GetOutlierDetection())
	for _, of := range []struct {
		path string
		list []string
	}{
		{"data.mesh.defaultServiceExportTo", config.DefaultServiceExportTo},
		{"data.mesh.defaultVirtualServiceExportTo", config.DefaultVirtualServiceExportTo},
		{"data.mesh.defaultDestinationRuleExportTo", config.DefaultDestinationRuleExportTo},
	} {
		if len(of.list) > 0 {
			r.exportTo(of.path, of.list, nil, "default")
		}
	}
}

// checkUnknown validates the TLS settings for connections to unknown destinations.
func checkUnknown(r *report, policy *meshv1.MeshConfig_OutboundTrafficPolicy) {
	at, tls := "data.mesh.outboundTrafficPolicy.tls", policy.GetTls()
	if tls == nil {
		return
	}
	if policy.GetMode() != meshv1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
		r.warnf(problem.NoEffect, at, "it is for mode ALLOW_ANY_DYNAMIC_DNS, not %v", policy.GetMode())
	}
	checkTLS(r, at, tls)
}

// checkProxyConfig warns of invalid fields of a ProxyConfig. Proxies do not receive these fields.
func checkProxyConfig(r *report, path string, config *meshv1.ProxyConfig) {
	_, faults := proxyconfig.Of(config)
	for _, fault := range faults {
		r.warnf(problem.Invalid, path+"."+fault.Field, "%s", fault.Message)
	}
}

// checkCACertificate warns of a CA certificate whose PEM is invalid, and of certSigners without effect.
func checkCACertificate(r *report, path string, ca *meshv1.MeshConfig_CertificateData, signers bool) {
	alone := &meshv1.MeshConfig{CaCertificates: []*meshv1.MeshConfig_CertificateData{ca}}
	if ca.GetSpiffeBundleUrl() == "" && len(CACertificates(alone)) == 0 {
		r.warnf(problem.Invalid, path+".pem", "is not PEM with certificates only: the entry is left out")
	}
	if len(ca.GetCertSigners()) > 0 && !signers {
		r.warnf(problem.NoEffect, path+".certSigners", "no signers of Kubernetes sign for workloads here (EXTERNAL_CA): agents are told of "+
			"the certificate all the same")
	}
}

// CACertificates returns the certificates of further CAs in a mesh configuration (caCertificates), as PEM texts. Each
// text has at least one certificate, and other entries are omitted. The texts have the order of the configuration, and
// may be repeated. The result is nil if no entry remains, or for a nil config.
func CACertificates(config *meshv1.MeshConfig) (texts []string) {
	for _, ca := range config.GetCaCertificates() {
		if text := ca.GetPem(); certificatesAlone([]byte(text)) {
			texts = append(texts, text)
		}
	}
	return texts
}

// SignerCertificates returns the elements of CACertificates whose certSigners contain signer, the name of a signer of
// Kubernetes. The result is nil without such elements.
func SignerCertificates(config *meshv1.MeshConfig, signer string) (texts []string) {
	for _, ca := range config.GetCaCertificates() {
		if slices.Contains(ca.GetCertSigners(), signer) && certificatesAlone([]byte(ca.GetPem())) {
			texts = append(texts, ca.GetPem())
		}
	}
	return texts
}

// certificatesAlone reports whether all PEM blocks of a text are certificates, with at least one block and no text
// after the last block.
func certificatesAlone(text []byte) bool {
	for n := 0; ; n++ {
		block, rest := pem.Decode(text)
		if block == nil {
			return n > 0 && len(bytes.TrimSpace(rest)) == 0
		}
		if _, err := x509.ParseCertificate(block.Bytes); block.Type != "CERTIFICATE" || err != nil {
			return false
		}
		text = rest
	}
}

// checkServiceSettings warns of invalid hosts in serviceSettings.
func checkServiceSettings(r *report, config *meshv1.MeshConfig) {
	for i, s := range config.GetServiceSettings() {
		at := fmt.Sprintf("data.mesh.serviceSettings[%d].hosts", i)
		if len(s.GetHosts()) == 0 {
			r.warnf(problem.NoEffect, at, "is empty: the settings apply to no service")
		}
		for j, host := range s.GetHosts() {
			if wrong := wildcardHost(host); wrong != "" {
				r.warnf(problem.NoEffect, fmt.Sprintf("%s[%d]", at, j), "%q %s: no service has this host", host, wrong)
			}
		}
	}
}
