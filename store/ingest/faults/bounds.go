package faults

import (
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// maxText is the maximum size of each text of a problem (Field, Message and Whole), in bytes. Longer texts are cut.
const maxText = 512

// bounded returns at most problem.MostOfObject problems of one object. If there are more, it omits warnings before
// errors, and the last problem counts the omitted ones. Long texts are cut. The given slice is not changed, and is
// returned itself if it is within the bounds.
func bounded(id object.ID, all []object.Problem) []object.Problem {
	if len(all) > problem.MostOfObject {
		all = slices.Clone(all)
		slices.SortStableFunc(all, func(a, b object.Problem) int {
			return strings.Compare(string(a.Severity), string(b.Severity)) // error, warning
		})
		more := len(all) - problem.MostOfObject + 1
		all = append(all[:problem.MostOfObject-1], object.Problem{ID: id, Location: all[0].Location,
			Code: problem.NotAllowed, Severity: problem.Warning, Message: fmt.Sprintf("%d more problems of this object are not listed", more)})
	}
	for i, p := range all {
		if len(p.Field) > maxText || len(p.Message) > maxText || len(p.Whole) > maxText {
			all = slices.Clone(all)
			all[i].Field, all[i].Message, all[i].Whole = cut(p.Field), cut(p.Message), cut(p.Whole)
		}
	}
	return all
}

// cut returns at most maxText bytes of a text, as valid UTF-8, in a copy that does not keep the whole text alive.
func cut(text string) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), maxText)]), "")
}
