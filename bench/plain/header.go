package plain

import (
	"fmt"
	"strconv"
	"strings"
)

// Header returns the statements as a header for C.
func Header() string {
	var header strings.Builder
	for _, macro := range []struct{ name, text string }{
		{"TABLE", Table},
		{"PENDING_INDEX", PendingIndex},
		{"INSERT", Insert},
		{"CLAIM", Claim},
		{"COMPLETE", Complete},
		{"LIVE", Live},
		{"ACTIVITY_TYPE", ActivityType},
		{"ROUTE", Route},
		{"CONTENT_TYPE", ContentType},
	} {
		fmt.Fprintf(&header, "#define %s %s\n", macro.name, strconv.Quote(macro.text))
	}
	return header.String()
}
