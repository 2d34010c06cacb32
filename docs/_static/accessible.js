// Names and roles that the theme, the gallery and docutils leave out, for those who hear the page; and pictures that open in
// full size, for those who see it on a phone.
document.addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll("nav summary")) {
    const link = summary.closest("li")?.querySelector("a");
    summary.setAttribute("aria-label", `Pages below ${link?.textContent.trim() ?? "this one"}`);
  }
  for (const link of document.querySelectorAll(".sphx-glr-thumbcontainer a")) {
    const title = link.closest(".sphx-glr-thumbcontainer").querySelector(".sphx-glr-thumbnail-title");
    link.setAttribute("aria-label", title?.textContent.trim() ?? link.textContent.trim());
  }
  for (const entry of document.querySelectorAll(".citation-list > .citation")) entry.setAttribute("role", "listitem");
  for (const picture of document.querySelectorAll(".bd-article img")) {
    if (picture.closest("a, .sphx-glr-thumbcontainer")) continue;
    const link = document.createElement("a");
    link.href = picture.src;
    picture.replaceWith(link);
    link.append(picture);
  }
});
