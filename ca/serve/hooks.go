package serve

import "time"

// Hooks are told what happens, for metrics. Any may be nil. The goroutine of the request that it is about calls one, and keeps its place in the queue.
type Hooks struct {
	Request         func()                            // citadel_server_csr_count
	Issued          func(took time.Duration)          // citadel_server_success_cert_issuance_count; from request to answer
	Unauthenticated func()                            // citadel_server_authentication_failure_count
	BadCSR          func()                            // citadel_server_csr_parsing_err_count
	BadIdentity     func()                            // citadel_server_id_extraction_err_count: impersonation, revoked
	SignFailed      func()                            // citadel_server_csr_sign_err_count: sealed, journal away, issuer expired
	Turned          func(code string)                 // refused or given up by admission, by gRPC code
	Waited          func(first bool, d time.Duration) // in the queue, of those that were admitted
	HolderReported  func()
}

func (h *Hooks) fill() {
	for _, f := range []*func(){&h.Request, &h.Unauthenticated, &h.BadCSR, &h.BadIdentity, &h.SignFailed, &h.HolderReported} {
		if *f == nil {
			*f = func() {}
		}
	}
	if h.Issued == nil {
		h.Issued = func(time.Duration) {}
	}
	if h.Turned == nil {
		h.Turned = func(string) {}
	}
	if h.Waited == nil {
		h.Waited = func(bool, time.Duration) {}
	}
}
