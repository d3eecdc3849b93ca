/* report_query.c: --report and --compare of folders that tpgen wrote: pages, and a comparison as
   text. No plan is read. */
#include "driver/driver.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool is_folder(const char *path)
{
  struct stat s;
  return path && !stat(path, &s) && S_ISDIR(s.st_mode);
}

/* Writes it beside, and then in the place of a page that tpgen wrote. */
static void write_page(const char *path, const char *page)
{
  static const char mark[] = "<!-- tpgen report -->";
  const char *part = text("%s.part", path);
  char begin[128] = "";
  FILE *there = fopen(path, "r");
  if (there) {
    begin[fread(begin, 1, sizeof begin - 1, there)] = 0;
    fclose(there);
    if (!strstr(begin, mark))
      usage_error(3, "%s exists, and is no page that tpgen wrote: say another name with -o", path);
  }
  FILE *f = fopen(part, "w");
  if (!f) usage_error(3, "cannot write %s: %s", part, strerror(errno));
  const bool written = fputs(page, f) >= 0;
  if (fclose(f) || !written || rename(part, path)) {
    const int why = errno;
    unlink(part);
    usage_error(3, "cannot write %s: %s", path, strerror(why));
  }
}

void run_report_query(void)
{
  if (options.compare) {
    json_t *data = report_data_of(options.plan);
    json_t *other = report_data_of(options.other);
    json_member(data, "other", other);
    json_member(data, "folders",
                json_pack("[s, s]", printable(options.plan), printable(options.other)));
    print_comparison(data);
    if (options.out) write_page(options.out, page_text(data));
    end_printing();
  }
  if (!options.report || !is_folder(options.plan)) return;
  json_t *data = report_data_of(options.plan);
  if (options.metrics) json_member(data, "metrics", read_metrics(options.metrics));
  write_page(options.out ? options.out : text("%s/run.html", options.plan), page_text(data));
  end_printing();
}
