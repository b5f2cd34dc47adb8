// Package obs defines the keys of log lines, and the metrics with their labels, in one place. It also samples log
// lines that clients can cause, and parses log levels.
//
// Owns: the metrics registry. Reads: no other package of Navarch. Never: has a label per proxy; contains key material.
package obs

import (
	"net/http"
	"regexp"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Keys of structured log lines.
const (
	KeyRevision = "revision" // revision of the store
	KeyEpoch    = "epoch"    // revision of the store that identifies a term of leadership
	KeyProxy    = "proxy"    // id of the Envoy node of a proxy
	KeyType     = "type"     // type of resources
	KeyObject   = "object"   // object of the configuration
	KeyField    = "field"    // path of a field in the object
	KeyLocation = "location" // place of the object, such as a file
	KeyError    = "error"    // an error, or its text
	KeyAddress  = "address"  // network address of this or another process
	KeyName     = "name"     // name of the thing that the line is about
	KeyPeer     = "peer"     // network address of a client
	KeyNode     = "node"     // id of an Envoy node
	KeyIdentity = "identity" // SPIFFE ID
	// keyCause is the cause of a refusal, one of a few.
	keyCause = "cause"
	// keySuppressed is the number of lines of the same cause that were not written.
	keySuppressed = "suppressed"
	KeyObjects    = "objects" // objects of a change or resource, the likeliest cause first; or their number
	KeyTook       = "took"    // a duration

	KeyChanges      = "changes"      // changes of configuration, all in one line
	KeyBuilt        = "built"        // number of built resources, by type
	KeyProxies      = "proxies"      // number of proxies whose configuration a change affects
	KeyAcknowledged = "acknowledged" // number of proxies that have acknowledged the change
	KeyResponses    = "responses"    // number of acknowledged responses, by type

	KeyProblem  = "problem"  // text of the problem
	KeyCode     = "code"     // class of the problem (problem.Code)
	KeyAnalyzer = "analyzer" // second code of the problem (problem.Analyzer)
	KeyApplies  = "applies"  // the object applies in spite of its problem
	KeyLines    = "lines"    // number of lines that were not written
	KeyRemoval  = "removal"  // the ID of the removal
	KeyRecords  = "records"  // number of records
	KeyKind     = "kind"     // kind of the records
	KeyKinds    = "kinds"    // kinds of objects or records, or their number
	KeySaid     = "said"     // number of records according to the head
	KeyKnown    = "known"    // whether this build knows the kind
	KeyNames    = "names"    // names of the first records

	KeyReason = "reason" // a text
	KeyUser   = "user"   // user of a process on this machine, from the kernel; or an operator
	KeyPID    = "pid"    // id of a process on this machine

	KeyPlace = "place" // function and line of our code
	KeyStack = "stack" // stack of the goroutine

	keyScope    = "scope"    // scope of log lines (Scoped)
	KeyLeast    = "least"    // level of a scope
	KeyRoles    = "roles"    // roles of this process
	KeyMesh     = "mesh"     // name of the mesh
	KeyVersion  = "version"  // version of this program, or of a resource
	KeyStore    = "store"    // the store of this process
	KeyListener = "listener" // name or address of a listener of this process
	KeyAtMost   = "at_most"  // a duration
)

// Keys of the lines about versions that are withheld from views.
const (
	KeyView       = "view"          // the version is withheld from the proxies of this view
	KeyEnvoys     = "envoy"         // versions of Envoy that the version is withheld from
	KeyIdentities = "identities"    // number of distinct identities that refused the version
	KeyFirst      = "first_refusal" // time of the first refusal
	KeyLast       = "last_refusal"  // time of the last refusal
	KeyRetry      = "retry"         // the time of the next retry
	KeyBecause    = "because"       // reason of a decision
)

// Version is the version in /version and pilot_info, set by the linker.
var Version = "dev"

var registry = prometheus.NewRegistry()

// seconds has the buckets of durations, from a push in memory to the delay of a slow fleet.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// The metrics under the names that dashboards and alerts of Istio use
// (https://istio.io/latest/docs/reference/commands/pilot-discovery/#metrics).
var (
	Connections = gaugeVec("pilot_xds", "Number of endpoints connected to this server using xDS.", "version")
	Pushes      = counterVec("pilot_xds_pushes", "Responses sent, by type: cds, eds, lds, rds, sds.", "type")
	PushTime    = histogramVec("pilot_xds_push_time", "Seconds to compute and send one response.", "type")
	SendTime    = histogram("pilot_xds_send_time", "Seconds the transport took to accept one response.")
	ConfigSize  = histogramSizes("pilot_xds_config_size_bytes", "Bytes of the responses sent, by type.", "type")
	Rejects     = rejects{counterVec("pilot_xds_cds_reject", "Clusters refused by proxies.", "err"),
		counterVec("pilot_xds_eds_reject", "Endpoint assignments refused by proxies.", "err"),
		counterVec("pilot_xds_lds_reject", "Listeners refused by proxies.", "err"),
		counterVec("pilot_xds_rds_reject", "Route configurations refused by proxies.", "err")}
	TotalRejects     = counterVec("pilot_total_xds_rejects", "Responses refused by proxies, by type.", "type")
	ExpiredNonce     = counterVec("pilot_xds_expired_nonce", "Requests with a nonce that is not the newest, by type.", "type")
	WriteTimeout     = counter("pilot_xds_write_timeout", "Streams closed because a response could not be written in time.")
	Convergence      = histogram("pilot_proxy_convergence_time", "Seconds from a change of configuration to the push of it to a proxy.")
	QueueTime        = histogram("pilot_proxy_queue_time", "Seconds a proxy waited in the push queue.")
	Debounce         = histogram("pilot_debounce_time", "Seconds from the first change of a batch to its plan.")
	PushTriggers     = counterVec("pilot_push_triggers", "Plans made, by lane.", "type")
	InboundUpdates   = counterVec("pilot_inbound_updates", "Records that changed, by kind.", "type")
	KubeConfigEvents = counterVec("pilot_k8s_cfg_events", "Changes of Istio's and the Gateway API's objects that the leader read from "+
		"Kubernetes, by kind and event: add, update, delete.", "type", "event")
	KubeRegistryEvents = counterVec("pilot_k8s_reg_events", "Changes of Services, Pods, Nodes, Namespaces and EndpointSlices that the "+
		"leader read from Kubernetes, by kind and event: add, update, delete.", "type", "event")
	ManagedClusters = gaugeVec("istiod_managed_clusters", "Kubernetes clusters that this process reads as the leader, by cluster_type: "+
		"local, remote.", "cluster_type")
	Services        = gauge("pilot_services", "Services known.")
	VirtualServices = gauge("pilot_virt_services", "VirtualServices known.")
	RejectedConfigs = gaugeVec("pilot_total_rejected_configs", "Objects that do not apply because they are not valid.", "kind")
	JWKSFetched     = counter("pilot_jwks_resolver_network_fetch_success_total", "Key sets that were fetched for RequestAuthentications.")
	JWKSFailed      = counter("pilot_jwks_resolver_network_fetch_fail_total", "Key sets that could not be fetched.")
	SecretErrors    = counter("pilot_sds_certificate_errors_total",
		"Secrets whose private key could not be opened when a proxy asked for it.")
	Info              = gaugeVec("pilot_info", "Version of this build; the value is 1.", "version")
	Build             = gaugeVec("istio_build", "Version of this build, under Istio's name; the value is 1.", "component", "tag")
	InjectionRequests = counter("sidecar_injection_requests_total", "Reviews of Pods that the injection webhook was asked for.")
	Injections        = counter("sidecar_injection_success_total", "Pods that were given a proxy.")
	InjectionFailures = counter("sidecar_injection_failure_total", "Pods that were refused because they cannot be given a proxy.")
	InjectionsSkipped = counter("sidecar_injection_skip_total",
		"Pods that are not given a proxy, by their labels, their namespace or the policy.")
	InjectionTime = histogram("sidecar_injection_time_seconds", "Seconds that the review of a Pod took.")
	Uptime        = gauge("istiod_uptime_seconds", "Seconds since this process started.")
)

// The metrics of the CA, under istiod's names.
var (
	CSRs               = counter("citadel_server_csr_count", "Certificate signing requests received.")
	CertificatesIssued = counter("citadel_server_success_cert_issuance_count", "Certificates issued.")
	CSRAuthFailures    = counter("citadel_server_authentication_failure_count", "Callers whose credential was not accepted.")
	CSRParseErrors     = counter("citadel_server_csr_parsing_err_count", "Signing requests that are not valid.")
	CSRIdentityErrors  = counter("citadel_server_id_extraction_err_count", "Callers without an identity that may have a certificate.")
	CSRSignErrors      = counter("citadel_server_csr_sign_err_count", "Signing requests that this replica could not sign.")
	IssueTime          = histogram("navarch_certificate_seconds", "Seconds from a signing request to its certificate.")
	RootExpiry         = gauge("citadel_server_root_cert_expiry_timestamp", "Unix time at which the root in force expires, in seconds.")
	RootExpiryIn       = gauge("citadel_server_root_cert_expiry_seconds", "Seconds until the root in force expires; below 0: it has.")
	ChainExpiry        = gauge("citadel_server_cert_chain_expiry_timestamp",
		"Unix time at which the signer in force can sign no more, in seconds.")
	ChainExpiryIn = gauge("citadel_server_cert_chain_expiry_seconds",
		"Seconds until the signer in force can sign no more; below 0: it cannot.")
	QueueWait = histogramVec("navarch_certificate_queue_seconds",
		"Seconds that signing requests waited for their turn, by kind: first, renewal.", "kind")
	Turned = counterVec("navarch_certificate_requests_refused_total",
		"Signing requests that the queue refused or that gave up in it, by gRPC code.", "code")
	SignerRequests = counterVec("navarch_signer_requests_total",
		"Requests to signers of Kubernetes, by outcome: signed, invalid, busy, refused (denied or failed), unfit (what was signed is not what "+
			"was asked for), late, unavailable; left: a CertificateSigningRequest could not be deleted.", "outcome")
	SigningQueue = gaugeVec("navarch_certificate_queue", "Signing requests, by where they are: first, renewal (queued), delayed (by "+
		"rate), signing, writing (to the journal).", "where")
	JournalLag = gauge("navarch_journal_lag_seconds", "Seconds that the oldest certificate which is not yet durable in the journal "+
		"has waited; 0: none waits.")
	Epochs         = gaugeVec("navarch_keyring_epochs", "Signing epochs, by status.", "status")
	Generation     = gauge("navarch_keyring_generation", "Generation of the root bundle that this replica gives out.")
	Sealed         = gauge("navarch_keyring_sealed", "1 while this replica cannot sign.")
	WaitingHolders = gauge("navarch_keyring_waiting_holders", "Holders of leaves that a root rotation waits for.")
	Revocations    = gaugeVec("navarch_keyring_revoked", "How much is revoked, by what: certificates, identities.", "what")
	KeyringPeers   = gauge("navarch_keyring_peers", "Replicas that answered when this one last asked its peers which keyring they "+
		"remember.")
	MachinesEnding = counter("navarch_machine_renewals_ending_total",
		"Renewals of machines that may go on renewing by certificate alone for fewer than 14 more days (--machine-renewals).")
	Allowance    = gauge("navarch_keyring_allowance", "Renewals of certificates that this replica may issue while etcd is away.")
	TokenKeysAge = gauge("navarch_token_keys_age_seconds",
		"Seconds since the keys of a token issuer were fetched, of the issuer whose keys are the oldest; 0: none are fetched.")
)

// The metrics of the webhooks; those named galley_ are istiod's.
var (
	ValidationPassed = counterVec("galley_validation_passed", "Objects that the validation webhook admitted.", "group", "version",
		"resource")
	ValidationFailed = counterVec("galley_validation_failed",
		"Objects that the validation webhook refused, by reason: crd_decode_error, unknown_type, invalid_resource.", "group", "version",
		"resource", "reason")
	ValidationHTTPErrors = counterVec("galley_validation_http_error",
		"Requests to the validation webhook that were answered with an HTTP error.", "status")
	WebhookFailsOpen = gaugeVec("navarch_webhook_fails_open",
		"By ValidatingWebhookConfiguration: 1 while invalid objects are admitted if its webhooks do not answer (failurePolicy Ignore), 0 "+
			"while they are refused (Fail).", "configuration")
	AdmissionReviews = counterVec("navarch_admission_reviews_total",
		"Admission reviews, by webhook and result: allowed, refused, error (no answer was made, or the API server no longer waited for it).",
		"webhook", "result")
	AdmissionTime = histogramVec("navarch_admission_seconds", "Seconds from an admission review to its answer, by webhook.", "webhook")
)

// The metrics that are Navarch's own.
var (
	Proxies = gauge("navarch_proxies", "xDS streams that are served.")
	Views   = gaugeVec("navarch_views", "Planned layers that are shared by proxies, by layer: scope, variant, workload, overlay.",
		"layer")
	Builds         = counterVec("navarch_builds_total", "Resources built (encoded), by type.", "type")
	FragmentBuilds = counter("navarch_virtual_host_builds_total", "Virtual hosts built (encoded).")
	Pooled         = gaugeVec("navarch_pooled", "Encoded resources and virtual hosts that are held.", "what")
	SharedBytes    = counter("navarch_shared_bytes_total", "Bytes of resources handed to streams without a copy.")
	Revision       = gauge("navarch_revision", "Newest store revision whose records this replica has in full.")
	Propagation    = histogram("navarch_propagation_seconds", "Seconds from the commit of a revision to its acknowledgement by a proxy.")
	Acks           = histogram("navarch_ack_seconds", "Seconds from sending a response to its acknowledgement.")
	Leading        = gauge("navarch_leader", "1 while this process is the elected ingester.")
	Promoted       = gauge("navarch_promoted", "1 while this process is the elected ingester of the promoted revision, whose leader alone "+
		"writes to Kubernetes.")
	Writes     = counterVec("navarch_store_writes_total", "Records written to the store, by operation.", "op")
	KubeWrites = counterVec("navarch_kubernetes_writes_total",
		"Objects that the leader wrote to the API server of Kubernetes, by result: written, conflict (somebody else wrote the object first; "+
			"it is read again), failed (it is tried again).", "result")
	KubeAge = gauge("navarch_kubernetes_age_seconds", "Seconds since the API server of the config cluster last told the leader "+
		"something or, if it has not told everything yet, since it was first asked; 0 elsewhere. Meanwhile what is stored of the cluster "+
		"stays in use.")
	RemoteAge = gaugeVec("navarch_remote_cluster_age_seconds",
		"Seconds since the API server of each other cluster last answered the leader or, if it never has, since it was first asked. While it "+
			"does not answer, what is stored of the cluster stays in use.", "cluster")
	Machines      = gauge("navarch_machines", "Machines that registered themselves and are connected to this replica.")
	Registrations = counterVec("navarch_machine_registrations_total",
		"Machines that asked to be registered, by result: registered, or why they were refused: identity (the proof does not allow it), "+
			"address (none, or somebody else's), group (the WorkloadGroup or WorkloadEntry is not there), number "+
			"(the service account has too many).", "result")
	Waiting    = gauge("navarch_ingest_waiting", "Records that wait in the leader's ingester for their batch; 0 elsewhere.")
	StoreAlarm = gaugeVec("navarch_store_alarm", "1 while something is wrong with the store, by cause: away (etcd does not answer), "+
		"identity (it is another or an older store than was read), contents (somebody other than the leader changed records), keyring (its "+
		"keyring is older than one seen before), space (its quota is nearly used).", "cause")
	ClockOff = gauge("navarch_clock_off_seconds", "Seconds between this machine's clock and the median clock of the processes that "+
		"sign certificates; above 120 this process signs nothing.")
	StoreBytes = gaugeVec("navarch_store_bytes", "Bytes of etcd's database, at the member whose file is the largest, by what: file "+
		"(its size), in_use (the part of it that holds data), quota (the size at which etcd stops accepting writes).", "what")
	RemovalsHeld = gaugeVec("navarch_removals_held", "Objects whose removal the leader holds, by kind, until they are back, their time "+
		"is over, or an operator accepts it (navarchctl removals).", "kind")
	HeldKinds = gaugeVec("navarch_store_held", "By kind: 1 while the stored records of the kind differ from what the leader wrote, so "+
		"that this replica serves the last good ones; unknown: kinds that this build does not know.", "kind")
	Problems = gaugeVec("navarch_problems", "Problems with files, objects, stored values and refused resources, and on the leader "+
		"those that replicas found in planning, by severity: error (the object or the field does not apply), warning. "+
		"/debug/problems lists them.", "severity")
	SilentEtcd = gauge("navarch_store_silent_endpoints", "Addresses of etcd (--etcd-endpoints) that did not answer when they were "+
		"asked last, or answered that they know no leader; asked once a minute.")
	TenantObjects  = gaugeVec("navarch_tenant_objects", "Objects of tenants that use half of their budget or more.", "tenant")
	TenantBytes    = gaugeVec("navarch_tenant_bytes", "Bytes of configuration of tenants that use half of their budget or more.", "tenant")
	TenantRefused  = gauge("navarch_tenant_refused_objects", "Objects that do not apply because their tenant's budget has no room.")
	TenantDelivery = histogramVec("navarch_tenant_delivery_seconds", "Seconds from the commit of a change of configuration to the "+
		"acknowledgement by 99 % of the affected proxies of a tenant at this replica; once for each change that so many acknowledged.",
		"tenant")
	TenantDeliveries = counterVec("navarch_tenant_deliveries_total", "Proxies that a change of configuration affected, by tenant and by "+
		"result: acknowledged, refused, gone (its stream ended before), pending (it had not answered when the change was forgotten).",
		"tenant", "result")
	OracleChecks   = counter("navarch_oracle_checks_total", "Views planned from scratch to check the incremental plan.")
	OracleFailures = counter("navarch_oracle_failures_total", "Views whose incremental plan differed from the plan made from scratch.")
	PlanPiece      = histogram("navarch_plan_piece_seconds", "Seconds that the plan loop spent on one piece of work: endpoints, changes "+
		"and joins wait for its end.")
	MemoryKills = gauge("navarch_memory_kills", "Successive kills of this process while its memory was short; 0 after an orderly time "+
		"or restart.")
	Panics = counterVec("navarch_panics_total", "Panics that ended one piece of work and not the process, by what they ended: rpc, "+
		"plan, normalise, admission.", "work")
	BlockedCalls = counterVec("navarch_blocked_calls_total", "Calls within this process that must not block and did not return for 5 "+
		"seconds, by what was called.", "call")
	SetAside = gauge("navarch_records_set_aside", "Records whose newest version is not served because the plan panics with it; their "+
		"last good version is, where there is one.")
	Quarantined = gaugeVec("navarch_quarantined", "Resources that proxies refused and that are held back, by type.", "type")

	Unauthenticated = gaugeVec("navarch_unauthenticated_connections",
		"Connections that are served and have shown no credential yet, by address: plain, secure.", "listener")
	UnauthenticatedWaiting = gaugeVec("navarch_unauthenticated_waiting",
		"Connections of shared sources (--shared-sources) that wait to be served because the limit of connections without a credential is "+
			"reached, by address: plain, secure.", "listener")
	UnauthenticatedRefused = counterVec("navarch_unauthenticated_refused_total",
		"Connections closed, or calls refused, before a credential was shown, by reason: displaced (by others, where there was no room), "+
			"no_room, no_credential (in time), too_many_bytes, too_many_frames, too_many_calls, too_many_headers.", "reason")

	Bounded = counterVec("navarch_identity_bounded_total",
		"Times that an identity was held to a limit, by what: streams (refused, or ended to make room for others of the identity), joins "+
			"(refused), connections (refused, or ended in the same way), messages (connections, calls and streams ended because of messages that "+
			"were begun and not completed, or that waited to be handled), names (subscriptions to names that do not exist, ignored), questions "+
			"(refused), frames (connections that were left unread for a while, because of what calls and frames on them cost).", "what")
	UnknownScopes = counterVec("navarch_unknown_scopes_total", "Proxies that joined with a network or a DNS domain that the configuration "+
		"does not have, and are served as if they had named none, by what: network, domain.", "what")

	WithheldVersions = gaugeVec("navarch_withheld_versions",
		"Versions of resources that are withheld from all proxies of a view because distinct identities refused them, or from those of one "+
			"identity because several of its workloads did, by type.", "type")
	QuarantineDecisions = counterVec("navarch_quarantine_decisions_total",
		"Versions that this replica began to withhold (withheld), and released because a proxy acknowledged them (acknowledged) or nobody "+
			"refused them again in time (not_refused_again).", "decision")
	QuarantineRetries = counterVec("navarch_quarantine_retries_total",
		"Withheld versions that were sent to one proxy of this replica, by what it answered: acknowledged, refused, unanswered.", "result")
)

// The metrics of the fleet, for an autoscaler and for an operator of several replicas.
var (
	FleetProxies = gauge("navarch_fleet_proxies_per_replica", "Streams of all replicas, including those that wait to be admitted, divided "+
		"by the number of ready replicas; some seconds old.")
	FleetReady   = gauge("navarch_fleet_replicas", "Replicas that are ready.")
	Imbalance    = gauge("navarch_imbalance", "Streams of this replica divided by its fair share; 1 is even.")
	Misplaced    = gauge("navarch_misplaced_proxies", "Streams of this replica that another replica should have, by the ring.")
	PushLag      = gauge("navarch_push_lag_seconds", "Seconds that the longest-waiting stream has waited for its turn to be sent to.")
	JoinDelay    = gauge("navarch_join_delay_seconds", "Seconds that a stream which arrives now would wait to be admitted.")
	JoinRate     = gauge("navarch_join_rate", "Streams admitted per second, of proxies that have no configuration yet.")
	JoinsWaiting = gauge("navarch_joins_waiting", "Streams that wait to be admitted.")
	Joins        = counterVec("navarch_joins_total", "Streams that asked to be admitted, by result: admitted, refused, gone (the client "+
		"left while it waited).", "result")
	TooSlow = counterVec("navarch_streams_too_slow_total",
		"Streams closed because the client was too slow, by what was not done in time: written, acknowledged.", "not")
	SentAway = counterVec("navarch_streams_sent_away_total",
		"Streams closed so that their proxies reconnect to another replica, by why: imbalance, leaving (this replica stops).", "why")
	RingVersion = gauge("navarch_ring_version", "Version of the ring that this replica uses.")
	RingMoved   = counter("navarch_ring_shards_moved_total", "Shards whose owner changed in rings that this process wrote.")
)

// rejects are the four counters of refused resources that Istio names by type.
type rejects struct{ CDS, EDS, LDS, RDS *prometheus.CounterVec }

func init() {
	// go_gc_heap_live_bytes is registered in addition to Go's usual metrics. It counts the bytes that the last
	// collection found in use, without later garbage.
	live := collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)})
	registry.MustRegister(collectors.NewGoCollector(live), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	Info.WithLabelValues(Version).Set(1)
	Build.WithLabelValues("pilot", Version).Set(1)
}

// Metrics returns the gatherer of all metrics of this process.
func Metrics() prometheus.Gatherer { return registry }

// Handler returns a handler that serves the metrics in Prometheus' format.
func Handler() http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// Platform returns the operating system and architecture, such as "linux/amd64", for /version.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

func counter(name, help string) prometheus.Counter {
	m := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	registry.MustRegister(m)
	return m
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	m := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	registry.MustRegister(m)
	return m
}

func gauge(name, help string) prometheus.Gauge {
	m := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	registry.MustRegister(m)
	return m
}

func gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	m := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	registry.MustRegister(m)
	return m
}

func histogram(name, help string) prometheus.Histogram {
	m := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds})
	registry.MustRegister(m)
	return m
}

func histogramVec(name, help string, labels ...string) *prometheus.HistogramVec {
	m := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, labels)
	registry.MustRegister(m)
	return m
}

func histogramSizes(name, help string, labels ...string) *prometheus.HistogramVec {
	sizes := prometheus.ExponentialBuckets(1<<10, 4, 8)
	m := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: sizes}, labels)
	registry.MustRegister(m)
	return m
}
