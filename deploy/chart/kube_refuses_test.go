//go:build kube

package chart

import (
	"path/filepath"
	"strings"
	"testing"
)

// wrong are values that the schema refuses, each with the line of the error: unknown values, values of Istio's chart,
// wrong types, values outside of an enumeration, missing values. The path is that of the key to correct. Values of one
// list can be combined.
var wrong = [][]struct{ set, line string }{{
	{"kek.creat=true", "at '/kek': additional properties 'creat' not allowed"},
	{"flags.loglevel=debug", "at '/flags': additional properties 'loglevel' not allowed"},
	{"monitoring.alerts.enable=true", "at '/monitoring/alerts': additional properties 'enable' not allowed"},
	{"deployments[0].roles={xds},deployments[0].replica=1", "at '/deployments/0': additional properties 'replica' not allowed"},
	{"deployments[1].replicas=1", "at '/deployments/1': missing property 'roles'"},
	{"deployments[2].roles={xds},deployments[2].resources.limit.memory=1Gi", "at '/deployments/2/resources': additional properties 'limit' not allowed"},
	{"deployments[3].roles={xds},deployments[3].autoscaling.minReplicas=1", "at '/deployments/3/autoscaling': missing property 'maxReplicas'"},
	{"deployments[4].roles={xd}", "at '/deployments/4/roles/0': value must be one of 'ingest', 'xds', 'ca', 'admit'"},
	{"etcd.own.snapshots.schedules.ABC=x", "at '/etcd/own/snapshots/schedules': additional properties 'ABC' not allowed"},
	{"etcd.own.snapshots.schedules.a=x", "at '/etcd/own/snapshots/schedules/a': 'x' does not match pattern '^(\\\\S+ \\\\S+ \\\\S+ \\\\S+ \\\\S+)?$'"},
	{"issuer.signers.mine=x", "at '/issuer/signers': additional properties 'mine' not allowed"},
	{"issuer.signers.a/b=x", "at '/issuer/signers/a~1b': 'x' does not match pattern '-----BEGIN CERTIFICATE-----'"},
	{"issuer.kind=another", "at '/issuer/kind': value must be one of 'own', 'signers', 'other'"},
	{"env.PILOT_ENABLE_ANALYSIS=true", "at '/env/PILOT_ENABLE_ANALYSIS': value must be 'absent, since navarchd does not read it: navarchctl migrate values says what takes its place'"},
	{"env.GOGC.a=b", "at '/env/GOGC': got object, want boolean or number or string"},
	{"envVarFrom[0].name=GOGC", "at '/envVarFrom/0': missing property 'valueFrom'"},
	{"envVarFrom[1].name=GOGC,envVarFrom[1].valueFrom=x", "at '/envVarFrom/1/valueFrom': got string, want object"},
	{"global.proxy.logLevel=info", "at '/global/proxy': " + istiods},
	{"pilot.autoscaleMin=2", "at '/pilot': " + istiods},
	{"cni.enabled=true", "at '/cni': " + istiods},
	{"size=huge", "at '/size': value must be one of 'small', 'medium', 'large'"},
	{"kek.kms.enabled=true", "at '/kek/kms/image': minLength: got 0, want 1"},
	{"kek.others[0].key=b", "at '/kek/others/0': missing property 'secretName'"},
	{"injection.canary.percent=5", "at '/injection/canary/revision': minLength: got 0, want 1"},
	{"tag=sha256:abc", "at '/tag': 'sha256:abc' does not match pattern '^([A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?$'"},
	{"etcd.own.restore=../x", "at '/etcd/own/restore': '../x' does not match pattern '^([A-Za-z0-9][-A-Za-z0-9_.]*)?$'"},
	{"imagePullSecrets[0].name=x", "at '/imagePullSecrets/0': got object, want string"},
	{"podLabels.a.b=c", "at '/podLabels/a': got object, want boolean or number or string"},
	{"runAsUser=abc", "at '/runAsUser': got string, want integer"},
	{"networkPolicies=yes", "at '/networkPolicies': got string, want boolean"},
	{"meshConfig.defaultProviders=5", "at '/meshConfig/defaultProviders': got number, want object"},
	{"volumes[0].emptyDir.medium=Memory", "at '/volumes/0': missing property 'name'"},
	{"crds.install=1", "at '/crds/install': got number, want boolean"},
}, {
	{"kek=5", "at '/kek': got number, want object"},
	{"deployments.roles={xds}", "at '/deployments': got object, want array"},
	{"etcd=null,size=null,trustDomain=null", "at '': missing properties 'size', 'trustDomain', 'etcd'"},
	{"injection.canary=null", "at '/injection': missing property 'canary'"},
	{"injection.policy=on", "at '/injection/policy': value must be one of 'enabled', 'disabled'"},
	{"monitoring.alerts=true", "at '/monitoring/alerts': got boolean, want object"},
	{"env=PILOT_PUSH_THROTTLE", "at '/env': got string, want object"},
	{"flags.log-level[0]=x", "at '/flags/log-level': got array, want string"},
	{"flags.allow-empty=on", "at '/flags/allow-empty': 'on' does not match pattern '^(true|false)$'"},
	{"flags.tenant-isolation=maybe", "at '/flags/tenant-isolation': 'maybe' does not match pattern '^(true|false)$'"},
	{"flags.tenant-max-bytes=many", "at '/flags/tenant-max-bytes': 'many' does not match pattern '^[0-9]+$'"},
	{"flags.drain-after=90", "at '/flags/drain-after': maximum: got 90, want 0"},
	{"flags.leader-lease=soon", "at '/flags/leader-lease': 'soon' does not match pattern '^(0|([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+)$'"},
	{"etcdd.endpoints={a}", "at '': additional properties 'etcdd' not allowed"},
}}

const istiods = "value must be 'absent, since it is a value of the chart istiod: navarchctl migrate values -f FILE -o yaml translates such values'"

// Each wrong value is reported on its own line, with Helm 3 and 4, without a further line about its parent.
func TestKubeChartNamesWrongValues(t *testing.T) {
	t.Parallel()
	h3, err := NewHelm3(t.TempDir(), filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	for version, h := range map[string]*Helm{"3": h3, "4": helm(t)} {
		for _, list := range wrong {
			args := []string{"template", h.Dir}
			want := map[string]bool{}
			for _, one := range list {
				args, want[one.line] = append(args, "--set", one.set), true
			}
			_, err := h.Run(t.Context(), args...)
			if err == nil {
				t.Fatalf("Helm %s takes all of them", version)
			}
			for line := range strings.Lines(err.Error()) {
				said, is := strings.CutPrefix(strings.TrimSpace(line), "- ")
				if is && !want[said] && !strings.HasSuffix(said, ": validation failed") { // a heading of several lines
					t.Errorf("Helm %s says: %s", version, said)
				}
				delete(want, said)
			}
			for line := range want {
				t.Errorf("Helm %s does not say: %s", version, line)
			}
		}
	}
}

// The templates refuse, by name, errors that the schema cannot express: values that contradict each other, a role
// without a process or with two, names that are too long or exist already.
func TestKubeChartRefuses(t *testing.T) {
	t.Parallel()
	h := helm(t)
	const long = "abcdefghijklmnopqrstuvwxyz"
	const asked = "issuer.kind=signers,issuer.signers.a\\.b/c=-----BEGIN CERTIFICATE-----,issuer.servingSecretName=s"
	for set, want := range map[string]string{
		"issuer.kind=signers":                 "needs issuer.signers",
		"issuer.kind=other":                   "needs issuer.address",
		"issuer.address=ca.example.com:443":   "issuer.address is not for issuer.kind own",
		asked + ",issuer.defaultSigner=a.b/d": "no roots of issuer.defaultSigner",
		asked:                                 "needs issuer.defaultSigner, or issuer.signerDomain",
		asked + ",issuer.signerDomain=a.b":    "needs issuer.servingRoots",
		asked + ",issuer.signerDomain=a.b,issuer.address=c:1": "issuer.address is not for issuer.kind signers",
		"crds.install=true":        "make chart",
		"etcd.tls.secretName=mine": "serverSecretName",
		"revision=" + long:         "revision: the name navarch-etcd-" + long + "-snapshot-week of a CronJob has 53 characters, at most 52 are allowed",
		"etcd.own.snapshots.enabled=false,etcd.own.defragmentation=,revision=" + long + "abcdefghijklmn":                                                "revision: the name navarch-etcd-" + long + "abcdefghijklmn of a StatefulSet has 53 characters, at most 52",
		"etcd.endpoints={https://a:1},revision=" + long + "abcdefghijklmn":                                                                              "", // there is no etcd of the chart's
		"revision=abcdefghijklmnop,deployments[0].roles={ingest,xds,ca,admit},deployments[0].replicas=1,deployments[0].name=" + long + "abcdefghijklmn": "deployments: the name istiod-abcdefghijklmnop-" + long + "abcdefghijklmn has 64 characters, at most 63",
		"tag=" + long + long + long + "_x": "", // longer than a label
		"gatewaySecrets[0].namespace=a,gatewaySecrets[1].namespace=b,gatewaySecrets[2].namespace=a": "gatewaySecrets: namespace a is there twice",
		"etcd.own.snapshots.schedules.x=":                                              "", // a name without a schedule is ignored
		"kek.others[0].secretName=navarch-kek":                                         "kek.others: key kek.key of Secret navarch-kek is there twice",
		"kek.others[0].secretName=b,kek.kms.enabled=true,kek.kms.image=i":              "kek.others: a KMS changes its keys by itself",
		"etcd.own.restore=h06.db":                                                      "etcd.own.restore: name a folder that is not there yet with etcd.own.dataFolder",
		"etcd.own.restore=h06.db,etcd.own.dataFolder=b,etcd.own.storage.enabled=false": "etcd.own.restore: there are no volumes",
		"deployments[0].roles={xds}":                                                   "deployments[0]: replicas or autoscaling is needed",
		"meshConfig.trustDomain=a,trustDomain=b":                                       "meshConfig.trustDomain, a, is not trustDomain, b, by which navarchd goes: give it there",
		"meshConfig.trustDomain=b,trustDomain=b":                                       "",
		"meshConfig.rootNamespace=b":                                                   "", // of the mesh's policies
		"flags.drain-after=1m30s,flags.machine-renewals=0,flags.jwks-cluster=true":     "",
		"monitoring.podMonitor=null,volumes=null,envVarFrom=null,env=null,initContainers=null,serviceAnnotations=null": "", // like --reuse-values after an older chart
		"volumes[0].name=etcd":                                                     "volumes: the name etcd is there already",
		"volumes[0].name=a,volumes[1].name=a":                                      "volumes: the name a is there already",
		"volumeMounts[0].name=a,volumeMounts[0].mountPath=/a":                      "volumeMounts: a is no name of volumes",
		"initContainers[0].name=discovery":                                         "initContainers: the name discovery is there already",
		"env.GOGC=1,envVarFrom[0].name=GOGC,envVarFrom[0].valueFrom.fieldRef=null": "envVarFrom: the variable GOGC is there already",
	} {
		_, err := h.Run(t.Context(), "template", h.Dir, "--set", set)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
	for values, want := range map[string]string{
		`[{"roles": ["ingest", "xds", "admit"], "replicas": 1}]`:                                                                                                            "none has the role ca",
		`[{"roles": ["ingest", "xds", "ca"], "replicas": 1}]`:                                                                                                               "none has the role admit",
		`[{"roles": ["ingest", "xds", "ca", "admit"], "replicas": 1}, {"name": "more", "roles": ["xds"], "replicas": 1}]`:                                                   "role xds",
		`[{"roles": ["ingest", "xds"], "replicas": 1}, {"roles": ["ca", "admit"], "replicas": 1}]`:                                                                          "is there twice",
		`[{"roles": ["ingest", "xds", "ca", "admit"], "autoscaling": {"minReplicas": 1, "maxReplicas": 2, "targetCPU": 50, "targetProxies": 100}}]`:                         "deployments[0].autoscaling: targetCPU and targetProxies exclude each other",
		`[{"roles": ["ingest", "xds", "ca", "admit"], "replicas": 1, "autoscaling": {"minReplicas": 1, "maxReplicas": 2}}]`:                                                 "deployments[0]: replicas and autoscaling exclude each other",
		`[{"roles": ["ingest", "xds", "ca", "admit"], "autoscaling": {"minReplicas": 1, "maxReplicas": 2}}]`:                                                                "deployments[0]: autoscaling by CPU needs resources.requests.cpu",
		`[{"roles": ["ingest", "xds", "ca", "admit"], "autoscaling": {"minReplicas": 1, "maxReplicas": 2, "targetCPU": 50}, "resources": {"requests": {"memory": "1Gi"}}}]`: "resources.requests.cpu",
		`[{"roles": ["ingest", "xds", "ca", "admit"], "autoscaling": {"minReplicas": 3, "maxReplicas": 2, "targetProxies": 50}}]`:                                           "deployments[0].autoscaling: maxReplicas, 2, is less than minReplicas, 3",
	} {
		if _, err := h.Run(t.Context(), "template", h.Dir, "--set-json", "deployments="+values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}
