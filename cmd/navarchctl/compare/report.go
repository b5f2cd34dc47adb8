package compare

// mostOfAll is the highest number of findings (unexplained differences) in a report.
const mostOfAll = 20_000

// Report has the comparisons of several proxies. It is not safe for concurrent use.
type Report struct {
	// SchemaVersion is set by the caller.
	SchemaVersion int `json:"schemaVersion"`
	// Summary is computed by Summarise.
	Summary   Summary    `json:"summary"`
	Workloads []Workload `json:"workloads"`        // the caller adds one for each compared proxy
	Unread    []Unread   `json:"unread,omitempty"` // the caller adds one for each dump or Pod that could not be read
}

// Summary counts the elements of Report.Workloads by outcome. Argued means that the documentation explains all
// differences. The field Resources counts the resources of all workloads.
type Summary struct {
	Equal     int   `json:"equal"`
	Argued    int   `json:"argued"`
	Different int   `json:"different"`
	Resources Count `json:"resources"`
}

// Workload is the comparison of one proxy of a workload.
type Workload struct {
	Workload string `json:"workload"` // namespace/name
	Proxy    string `json:"proxy"`    // name.namespace
	Dump     string `json:"dump"`     // the file or Pod that the dump was read from
	Result
}

// Unread is a dump or a Pod that could not be read.
type Unread struct {
	Dump   string `json:"dump"`   // the file or Pod, as in Workload
	Reason string `json:"reason"` // text of the error
}

// Room returns the number of findings that may still be added to the report. All workloads of a report together may
// have 20,000 findings.
func (r *Report) Room() int {
	room := mostOfAll
	for _, w := range r.Workloads {
		room -= len(w.Findings)
	}
	return max(room, 0)
}

// Summarise computes Summary from Workloads, and overwrites an earlier Summary. An unknown outcome counts as
// different.
func (r *Report) Summarise() {
	s := Summary{}
	for _, w := range r.Workloads {
		switch w.Outcome {
		case Equal:
			s.Equal++
		case Argued:
			s.Argued++
		default:
			s.Different++
		}
		for _, n := range w.Resources {
			s.Resources.Equal += n.Equal
			s.Resources.Argued += n.Argued
			s.Resources.Different += n.Different
		}
	}
	r.Summary = s
}
