package compare

// mostOfAll is the most findings of all proxies that a report keeps.
const mostOfAll = 20_000

// Report is the comparison of several proxies.
type Report struct {
	SchemaVersion int        `json:"schemaVersion"`
	Summary       Summary    `json:"summary"`
	Workloads     []Workload `json:"workloads"`
	Unread        []Unread   `json:"unread,omitempty"`
}

// Summary counts workloads by outcome, and resources.
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
	Dump     string `json:"dump"`     // file, or Pod
	Result
}

// Unread is a dump or a Pod that could not be read.
type Unread struct {
	Dump   string `json:"dump"`
	Reason string `json:"reason"`
}

// Room returns how many findings the report has room for.
func (r *Report) Room() int {
	room := mostOfAll
	for _, w := range r.Workloads {
		room -= len(w.Findings)
	}
	return max(room, 0)
}

// Summarise fills in the summary.
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
