package migrate

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// schema is the part of the chart's values.schema.json that is compared with.
type schema struct {
	Properties, PatternProperties map[string]schema
	AdditionalProperties          any
}

func chartSchema(t *testing.T) schema {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// has reports whether the chart has a value: a property of the name, or a map, at each step.
func (s schema) has(path string) bool {
	for key := range strings.SplitSeq(path, ".") {
		below, is := s.Properties[key]
		if !is {
			return len(s.Properties) == 0 && s.AdditionalProperties != false
		}
		s = below
	}
	return true
}

// Every setting that is acted on has a value in the chart. Every setting with a value in the chart is acted on, and the
// chart accepts the value.
func TestWhatIsActedOnIsWritten(t *testing.T) {
	chart := chartSchema(t)
	known := func(sort Sort, key string) bool {
		_, is := carried[sort][key]
		return is || sort == Value && (scaling[key] != nil || slices.Contains([]string{"env", "envVarFrom", "extraContainerArgs"}, key)) ||
			sort == Environment && hasProperty(chart.Properties["env"], key)
	}
	for _, sort := range []Sort{Value, Environment, Flag} {
		for _, r := range tables[sort] {
			covered := known(sort, r.key)
			for key := range carried[sort] { // a part of it
				covered = covered || below(r.key, key)
			}
			if r.effect == ActedOn && !covered {
				t.Errorf("%s %s is acted on, and no value says it", sort, r.key)
			}
		}
	}
	for sort, rules := range carried {
		for key, rule := range rules {
			if s := classify(Setting{Sort: sort, Key: key, Value: "?"}); s.Effect != ActedOn {
				t.Errorf("%s %s is written, and %s: %s", sort, key, s.Effect, s.Here)
			}
			for _, path := range rule.to {
				if !chart.has(path) {
					t.Errorf("%s %s: the chart has no value %s", sort, key, path)
				}
			}
		}
	}
}

func hasProperty(s schema, name string) bool {
	_, is := s.Properties[name]
	return is
}

// The chart refuses values of istiod's chart that it does not know, and names this command, for each value of the
// table.
func TestIstiodsNamesAreRefused(t *testing.T) {
	chart := chartSchema(t)
	var refused []string
	for pattern := range chart.PatternProperties {
		refused = append(refused, strings.Split(strings.Trim(pattern, "^()$"), "|")...)
	}
	keys := slices.Clone(aliases)
	for _, r := range values {
		keys = append(keys, r.key)
	}
	for _, key := range keys {
		first, _, _ := strings.Cut(key, ".")
		if !hasProperty(chart, first) && !slices.Contains(refused, first) {
			t.Errorf("the chart does not name navarchctl migrate values for %s", first)
		}
	}
}

// Each setting is translated into these values or stays in the rest.
func TestValues(t *testing.T) {
	for name, one := range map[string]struct{ from, want, rest string }{
		"nothing": {`{}`, `{}`, ""},
		"by the same names": {`{volumes: [{name: a}], serviceAnnotations: {a.b/c: d}, affinity: {nodeAffinity: {}}, revision: canary}`,
			`{volumes: [{name: a}], serviceAnnotations: {a.b/c: d}, revision: canary}`, ""},
		"at each of the places of Istio's chart": {`{pilot: {podLabels: {a: b}}, defaults: {podAnnotations: {c: d}}, _internal_defaults_do_not_set: {cni: {enabled: true}}}`,
			`{podLabels: {a: b}, podAnnotations: {c: d}, injection: {values: {pilot: {cni: {enabled: true}}}}}`, ""},
		"replicas":    {`{autoscaleEnabled: false, replicaCount: 3}`, `{deployments: [{roles: [ingest, xds, ca, admit], replicas: 3, resources: {requests: {cpu: 500m, memory: 2048Mi}}}]}`, ""},
		"autoscaling": {`{autoscaleMin: 7, resources: {limits: {memory: 4Gi}}}`, `{deployments: [{roles: [ingest, xds, ca, admit], resources: {requests: {cpu: 500m}, limits: {memory: 4Gi}}, autoscaling: {minReplicas: 7, maxReplicas: 7, targetCPU: 80}}]}`, ""},
		"by CPU": {`{cpu: {targetAverageUtilization: 60}, resources: {limits: {cpu: 200m}}}`,
			`{deployments: [{roles: [ingest, xds, ca, admit], resources: {limits: {cpu: 200m}}, autoscaling: {minReplicas: 1, maxReplicas: 5, targetCPU: 60}}]}`, ""},
		"variables": {`{env: {PILOT_ENABLE_STATUS: "true", PILOT_PUSH_THROTTLE: 5, PILOT_NOBODY: x, PILOT_ENABLE_IP_AUTOALLOCATE: perhaps, GOGC: [1]}}`,
			`{status: true, env: {PILOT_PUSH_THROTTLE: 5}}`, "GOGC PILOT_ENABLE_IP_AUTOALLOCATE PILOT_NOBODY"},
		"variables from elsewhere": {`{envVarFrom: [{name: GOGC, valueFrom: {configMapKeyRef: {name: a, key: b}}}, {name: NOBODY, valueFrom: {}}, {name: REVISION, valueFrom: {}}, 5]}`,
			`{envVarFrom: [{name: GOGC, valueFrom: {configMapKeyRef: {name: a, key: b}}}]}`, "REVISION  NOBODY"},
		"flags": {`{extraContainerArgs: [--shutdownDuration=20s, "--log_output_level=default:info,ads:debug", --httpAddr, ":9"]}`, `{shutdownSeconds: 20, flags: {log-level: "default:info,ads:debug"}}`, "httpAddr"},
		"what is empty means something": {`{meshConfig: {trustDomain: corp, defaultConfig: {tracing: {}}}, global: {proxy: {includeIPRanges: ""}, network: ""}}`,
			`{trustDomain: corp, meshConfig: {defaultConfig: {tracing: {}}}, injection: {values: {global: {proxy: {includeIPRanges: ""}}}}}`, ""},
		"at each place": {`{_internal_defaults_do_not_set: {global: {proxy: {includeIPRanges: ""}}}}`, `{injection: {values: {global: {proxy: {includeIPRanges: ""}}}}}`, ""},
		"an empty value of its own is the default": {`{global: {proxy: {clusterDomain: "", autoInject: ""}}, meshConfig: {trustDomain: ""}}`, `{}`, ""},
		"more than all of a CPU": {`{cpu: {targetAverageUtilization: 150}}`,
			`{deployments: [{roles: [ingest, xds, ca, admit], resources: {requests: {cpu: 500m, memory: 2048Mi}}, autoscaling: {minReplicas: 1, maxReplicas: 5, targetCPU: 150}}]}`, ""},
		"the other way round": {`{global: {operatorManageWebhooks: true, configValidation: false}}`, `{flags: {write-webhook-configurations: false}, validation: {enabled: false}}`, ""},
		"keys with dots": {`{global.network: a, global: {proxy.clusterDomain: b}, meshConfig: {trustDomain.x: c}, resources.limits: 5}`, `{meshConfig: {trustDomain.x: c}}`,
			"global.network global.proxy.clusterDomain resources.limits"},
		"somebody's decision": {`{global: {hub: a, tag: b, proxy: {image: c, logLevel: info}, certSigners: [d/e]}}`, `{injection: {values: {global: {proxy: {logLevel: info}}}}}`,
			"global.certSigners global.hub global.proxy.image global.tag"},
		"another CA": {`{global: {caAddress: "csr:443"}, env: {ENABLE_CA_SERVER: "false"}, meshConfig: {caCertificates: [{pem: x}]}, traceSampling: 5,
			extraContainerArgs: [--tlsCertFile=/a, --tlsKeyFile=/b, --caCertFile=/c]}`, `{meshConfig: {caCertificates: [{pem: x}]}}`, "global.caAddress ENABLE_CA_SERVER caCertFile tlsCertFile tlsKeyFile traceSampling"},
		"signers": {`{env: {EXTERNAL_CA: ISTIOD_RA_KUBERNETES_API, K8S_SIGNER: a/b, CERT_SIGNER_DOMAIN: a, PILOT_CERT_PROVIDER: k8s.io/a/b}, global: {pilotCertProvider: k8s.io/a/b}}`, `{}`,
			"global.pilotCertProvider CERT_SIGNER_DOMAIN EXTERNAL_CA K8S_SIGNER PILOT_CERT_PROVIDER"},
		"istiod's own CA": {`{env: {ENABLE_CA_SERVER: true, PILOT_CERT_PROVIDER: istiod}, global: {pilotCertProvider: istiod, proxy: {image: proxyv2}}}`, `{}`,
			"global.pilotCertProvider global.proxy.image ENABLE_CA_SERVER PILOT_CERT_PROVIDER"},
		"plain text":           {`{extraContainerArgs: ["--grpcAddr=:15010", "--monitoringAddr=:15014"]}`, `{plaintext: true}`, "monitoringAddr"},
		"plain text elsewhere": {`{extraContainerArgs: ["--grpcAddr=:9"]}`, `{}`, "grpcAddr"},
		"how long scaling waits": {`{autoscaleBehavior: {scaleDown: {stabilizationWindowSeconds: 600, policies: [a]}, scaleUp: {stabilizationWindowSeconds: 5}}}`,
			`{deployments: [{roles: [ingest, xds, ca, admit], resources: {requests: {cpu: 500m, memory: 2048Mi}}, autoscaling: {minReplicas: 1, maxReplicas: 5, targetCPU: 80, stabilizationWindowSeconds: 600}}]}`,
			"autoscaleBehavior.scaleDown.policies autoscaleBehavior.scaleUp.stabilizationWindowSeconds"},
		"of wrong types": {`{autoscaleMin: 1.5, autoscaleMax: 0, autoscaleEnabled: perhaps, cpu: {targetAverageUtilization: [80]}, resources: small, autoscaleBehavior: {scaleDown: {stabilizationWindowSeconds: 3601}},
			replicaCount: two, extraContainerArgs: [--shutdownDuration=1500ms]}`, `{}`,
			"autoscaleBehavior.scaleDown.stabilizationWindowSeconds autoscaleEnabled autoscaleMax autoscaleMin cpu.targetAverageUtilization replicaCount resources shutdownDuration"},
		"sizes of wrong types": {`{resources: {requests: {cpu: lots, memory: 1Gi}, limits: 5, others: {cpu: 1}}}`,
			`{deployments: [{roles: [ingest, xds, ca, admit], resources: {requests: {cpu: 500m, memory: 1Gi}}, autoscaling: {minReplicas: 1, maxReplicas: 5, targetCPU: 80}}]}`,
			"resources.limits resources.others.cpu resources.requests.cpu"},
		"bounds the wrong way round": {`{autoscaleMin: 6, autoscaleMax: 3}`,
			`{deployments: [{roles: [ingest, xds, ca, admit], resources: {requests: {cpu: 500m, memory: 2048Mi}}, autoscaling: {minReplicas: 6, maxReplicas: 6, targetCPU: 80}}]}`, "autoscaleMax"},
		"a number that scaling hides": {`{replicaCount: 4}`, `{}`, "replicaCount"},
		"bounds without scaling":      {`{autoscaleEnabled: false, autoscaleMin: 3}`, `{deployments: [{roles: [ingest, xds, ca, admit], replicas: 1, resources: {requests: {cpu: 500m, memory: 2048Mi}}}]}`, "autoscaleMin"},
		"Istio's plugin": {`{cni: {enabled: true, excludeNamespaces: [a], cniBinDir: /x}, pilot: {cni: {provider: multus}}}`, `{injection: {values: {pilot: {cni: {enabled: true, provider: multus}}}}}`,
			"cni.cniBinDir cni.excludeNamespaces"},
		"a flag goes first": {`{extraContainerArgs: [--log_output_level, debug], global: {logging: {level: info}}}`,
			`{flags: {log-level: debug}, injection: {values: {global: {logging: {level: info}}}}}`, ""},
		"what is not acted on": {`{traceSampling: 5, ownerName: x}`, `{}`, "traceSampling ownerName"},
	} {
		all, err := FromYAML([]byte(one.from))
		if err != nil {
			t.Fatal(err)
		}
		got, left := Values(all)
		var rest []string
		for _, s := range left {
			rest = append(rest, s.Key)
		}
		// as a file has them
		text, err := yaml.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var read, want map[string]any
		if err := yaml.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(one.want), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(read, want) || strings.Join(rest, " ") != one.rest {
			t.Errorf("%s:\n%s\nand %q; want %s\nand %q", name, text, strings.Join(rest, " "), one.want, one.rest)
		}
	}
}

// Settings of an IstioOperator outside of its values are translated too and take precedence, or are named.
func TestValuesOfOperator(t *testing.T) {
	all, err := FromYAML([]byte(`
kind: IstioOperator
spec:
  profile: default
  revision: canary
  tag: 1.29.0
  meshConfig: {accessLogFile: /dev/stdout}
  components:
    pilot:
      enabled: true
      k8s:
        hpaSpec: {minReplicas: 2, maxReplicas: 9, metrics: [{type: Resource}]}
        resources: {requests: {cpu: 1}}
        env: [{name: GOGC, value: "50"}, {name: EXTERNAL_CA, value: x}, {name: GOMEMLIMIT, valueFrom: {configMapKeyRef: {name: a, key: b}}}, 5]
        overlays: [{kind: Deployment}]
    ingressGateways: [{name: a, enabled: true}]
    cni: {enabled: false}
  values: {pilot: {autoscaleMin: 3, autoscaleMax: 4}, meshConfig: {enableTracing: true}}
`))
	if err != nil {
		t.Fatal(err)
	}
	got, left := Values(all)
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	const want = `deployments:
- autoscaling:
    maxReplicas: 9
    minReplicas: 2
    targetCPU: 80
  resources:
    requests:
      cpu: 1
  roles:
  - ingest
  - xds
  - ca
  - admit
env:
  GOGC: "50"
envVarFrom:
- name: GOMEMLIMIT
  valueFrom:
    configMapKeyRef:
      key: b
      name: a
meshConfig:
  accessLogFile: /dev/stdout
  enableTracing: true
revision: canary
`
	if string(text) != want {
		t.Errorf("%s", text)
	}
	var rest []string
	for _, s := range left {
		rest = append(rest, string(s.Effect)+" "+s.Key)
	}
	if got := strings.Join(rest, ", "); got != "decide global.tag, decide EXTERNAL_CA, reported , reported components.ingressGateways, reported components.pilot.k8s.hpaSpec.metrics, "+
		"reported components.pilot.k8s.overlays, reported profile, no effect components.cni.enabled, no effect components.pilot.enabled" {
		t.Error(got)
	}
}

// For any input, every setting is written or left, and the output is YAML.
func FuzzValues(f *testing.F) {
	for _, text := range []string{`{global.proxy.clusterDomain: x, global: {proxy.autoInject: y}, meshConfig: {trustDomain.x: z}, resources.limits: 5}`, `{resources: 5, cpu: 7, env: 5, envVarFrom: [5, {name: 5}]}`,
		`{resources: {requests: x}, autoscaleMin: -1, autoscaleEnabled: perhaps}`, "kind: IstioOperator\nspec: {values: {pilot: {env: {GOGC: [1]}}}}", "kind: IstioOperator\nspec: {values: {pilot: 5, global: 7}, hub: x, components: {pilot: {k8s: {resources: 5, env: [5, {name: 5, value: {}}], hpaSpec: {minReplicas: x}}}}}", `{env: {GOGC: {a: b}}, extraContainerArgs: [1, {a: b}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := FromYAML(text)
		if err != nil {
			return
		}
		values, rest := Values(all)
		if len(all) > 0 && len(values) == 0 && len(rest) == 0 && slices.ContainsFunc(all, func(s Setting) bool { return s.raw != "" }) {
			t.Errorf("%+v came to nothing", all)
		}
		if _, err := yaml.Marshal(values); err != nil {
			t.Error(err)
		}
	})
}

// A running Deployment's arguments and variables yield the same; those that the chart sets are left out.
func TestValuesOfDeployment(t *testing.T) {
	all, err := FromYAML([]byte(`
kind: Deployment
spec: {template: {spec: {containers: [{name: discovery, args: [discovery, --domain, example.org], env: [{name: REVISION, value: canary}, {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: GOMEMLIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory}}}]}]}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	got, rest := Values(all)
	limit := []any{map[string]any{"name": "GOMEMLIMIT", "valueFrom": &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}}}
	if want := map[string]any{"clusterDomain": "example.org", "revision": "canary", "envVarFrom": limit}; !reflect.DeepEqual(got, want) || len(rest) != 1 || rest[0].Key != "POD_NAME" {
		t.Errorf("%v and %+v", got, rest)
	}
}
