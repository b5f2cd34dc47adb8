package serve

import "time"

// Hooks are callbacks for metrics. Each may be nil. The request's goroutine calls them, sometimes in its signing slot,
// so they must not block.
type Hooks struct {
	Request         func()                            // citadel_server_csr_count
	Issued          func(took time.Duration)          // citadel_server_success_cert_issuance_count; from request to response
	Unauthenticated func()                            // citadel_server_authentication_failure_count
	BadCSR          func()                            // citadel_server_csr_parsing_err_count
	BadIdentity     func()                            // citadel_server_id_extraction_err_count: none, foreign, revoked
	SignFailed      func()                            // citadel_server_csr_sign_err_count: sealed, journal away, issuer expired
	Turned          func(code string)                 // refused or given up in the queue, or ErrBusy; by gRPC code
	Waited          func(first bool, d time.Duration) // time of an admitted request in the queue; first: by token
	HolderReported  func()                            // a report of held roots was stored
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
